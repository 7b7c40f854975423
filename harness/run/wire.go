package run

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"gic/backends"
	"gic/workloads"
)

// The control connection: a handshake that proves the token on both sides without sending it, then one gob
// stream of messages each way. A message sets one field.
const (
	wireMagic        = "gic-run1"
	nonceBytes       = 32
	handshakeTimeout = 5 * time.Second
	sendTimeout      = 20 * time.Second // a peer that does not read for this long is lost
)

// errRefused is a handshake that failed for want of the right token.
var errRefused = errors.New("token refused")

type message struct {
	Hello *hello // first message of whoever connected

	// Coordinator to rank.
	Open   *openOrder
	Window *windowOrder
	Point  *pointOrder
	Stop   bool // end what is running, then the process
	End    *endOrder

	// Rank to coordinator.
	Stage  string
	Opened *opened
	Ready  bool // the window exists
	Result *pointResult
	Err    *rankError // of opening or of the window

	Gather *gather // both ways

	// Coordinator to agent.
	Start  *startOrder
	Kill   string // job
	Clean  string // job
	Refuse string // the agent does not fit; the reason
	Finish bool

	// Agent to coordinator.
	Exit *exit
}

type hello struct {
	Agent bool
	Rank  int
	Job   string // rank processes
	// Agents.
	Size           int
	Host, Hostname string
	Machine        []byte // record.Machine as JSON
}

// openOrder is everything that a rank process must know of its outer case.
type openOrder struct {
	Ranks, LocalRank  int
	InProcess         int // ranks of a process: they share a GPU
	Backend, Plugin   string
	Device, NIC       string
	NICConfig, Config map[string]string
	Workload          string
	Seed              uint64
	Epoch             int
	Timeout, Spin     time.Duration
}

type windowOrder struct {
	Bytes uint64
	Epoch int
}

type pointOrder struct {
	Point workloads.Point
	Epoch int
}

// endOrder has the rank close its session and end.
type endOrder struct {
	Epoch int
}

// gather is one rank's part of a collective exchange, or the answer to it. Data is nil for a barrier.
type gather struct {
	Epoch, Seq int
	Data       []byte
	All        [][]byte
	Err        string
}

type opened struct {
	Info backends.Info
}

// pointResult is what one rank brings back from one point.
type pointResult struct {
	Series   []backends.Series
	Counters []backends.Counter
	Verify   workloads.Verification
	Facts    map[string]string
	Host     []byte // facts of the machine at the sample, a JSON object
	Err      *rankError
}

// rankError is an error that crossed the connection.
type rankError struct {
	Stage string
	Text  string
	Kind  errorKind
}

type errorKind int

const (
	kindFailed errorKind = iota
	kindNotSupported
	kindTimeout
	kindCanceled
)

func newRankError(stage string, err error) *rankError {
	e := &rankError{Stage: stage, Text: err.Error()}
	switch {
	case errors.Is(err, backends.ErrNotSupported):
		e.Kind = kindNotSupported
	case errors.Is(err, backends.ErrTimeout):
		e.Kind = kindTimeout
	case errors.Is(err, backends.ErrCanceled):
		e.Kind = kindCanceled
	}
	return e
}

// startOrder has an agent start its rank process; as JSON on file descriptor 3 it tells that process where to
// go. Nothing of it is in argv or the environment.
type startOrder struct {
	Job  string `json:"job"`
	Rank int    `json:"rank"`
	// More ranks, those behind Rank, are of the same process.
	More    int    `json:"more,omitempty"`
	Address string `json:"address"`
	Token   string `json:"token"`
	// Binding is what was done about an inherited CPU binding, for the record.
	Binding string `json:"binding,omitempty"`
}

// exit is how a rank process ended.
type exit struct {
	Job    string
	Rank   int
	OK     bool
	Status string // "exit status 2", "signal SIGSEGV (segmentation fault)", "agent lost: ..."
	Output string // what it printed: the beginning and the end
}

type conn struct {
	c   net.Conn
	dec *gob.Decoder
	mu  sync.Mutex // guards what follows
	w   *bufio.Writer
	enc *gob.Encoder
}

func newConn(c net.Conn) *conn {
	w := bufio.NewWriter(c)
	return &conn{c: c, dec: gob.NewDecoder(bufio.NewReader(c)), w: w, enc: gob.NewEncoder(w)}
}

// send may be called from any goroutine.
func (c *conn) send(m message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.c.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if err := c.enc.Encode(m); err != nil {
		return err
	}
	return c.w.Flush()
}

// recv is called from one goroutine. It waits without a deadline: whoever waits for a message has its own.
func (c *conn) recv() (message, error) {
	var m message
	err := c.dec.Decode(&m)
	return m, err
}

func (c *conn) close() { c.c.Close() }

// handshake proves to each side that the other knows the token, and closes the connection when it does not.
func handshake(c net.Conn, token string, server bool) (*conn, error) {
	if err := c.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		c.Close()
		return nil, err
	}
	err := prove(c, token, server)
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return newConn(c), nil
}

// prove runs the exchange: both send a nonce; the client sends the proof of both nonces, the server answers with
// one byte (1 accepted, 0 refused) and its own proof.
func prove(c net.Conn, token string, server bool) error {
	mine := make([]byte, len(wireMagic)+nonceBytes)
	copy(mine, wireMagic)
	if _, err := rand.Read(mine[len(wireMagic):]); err != nil {
		return err
	}
	if _, err := c.Write(mine); err != nil {
		return err
	}
	theirs := make([]byte, len(mine))
	if _, err := io.ReadFull(c, theirs); err != nil {
		return err
	}
	if string(theirs[:len(wireMagic)]) != wireMagic {
		return fmt.Errorf("the peer is not a gic of this version")
	}
	proof := func(role string, client, server []byte) []byte {
		h := hmac.New(sha256.New, []byte(token))
		h.Write([]byte(role))
		h.Write(client)
		h.Write(server)
		return h.Sum(nil)
	}
	if server {
		got := make([]byte, sha256.Size)
		if _, err := io.ReadFull(c, got); err != nil {
			return err
		}
		if !hmac.Equal(got, proof("client", theirs, mine)) {
			_, _ = c.Write(make([]byte, 1+sha256.Size))
			return errRefused
		}
		_, err := c.Write(append([]byte{1}, proof("server", theirs, mine)...))
		return err
	}
	if _, err := c.Write(proof("client", mine, theirs)); err != nil {
		return err
	}
	got := make([]byte, 1+sha256.Size)
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if got[0] != 1 || !hmac.Equal(got[1:], proof("server", mine, theirs)) {
		return errRefused
	}
	return nil
}

// dial connects to the coordinator and introduces itself.
func dial(address, token string, h hello) (*conn, error) {
	nc, err := net.DialTimeout("tcp", address, handshakeTimeout)
	if err != nil {
		return nil, err
	}
	c, err := handshake(nc, token, false)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	if err := c.send(message{Hello: &h}); err != nil {
		c.close()
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return c, nil
}

func newToken() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // does not fail (crypto/rand)
	return fmt.Sprintf("%x", b)
}

// jsonObject encodes facts for the connection; gob would need every type of the values registered.
func jsonObject(m map[string]any) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		b, _ = json.Marshal(map[string]any{"error": err.Error()})
	}
	return b
}
