package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// syncEvery bounds what a power cut can take: records older than this are on the disk. A crash of gic itself
// takes nothing that Write has returned for.
const syncEvery = time.Second

// Writer appends records to a run file. Each record is one write(2) of one whole line to a file opened for
// appending, so that whenever the process ends, the file holds whole lines and at most one torn one at its
// very end. The file is locked: a second writer is refused, on this host. Safe for concurrent use.
type Writer struct {
	mu     sync.Mutex
	f      *os.File
	synced time.Time
	// broken is the error of a write that failed half way: what follows would be glued to the torn line.
	broken error
}

// Create makes a new run file, which must not exist.
func Create(path string) (*Writer, error) {
	return open(path, os.O_CREATE|os.O_EXCL)
}

// Append opens an existing run file to go on with it. A torn last line stays where it is and gets its end, so
// that readers can name it.
func Append(path string) (*Writer, error) {
	w, err := open(path, 0)
	if err != nil {
		return nil, err
	}
	if err := w.endTornLine(); err != nil {
		w.f.Close()
		return nil, fmt.Errorf("append to %s: %w", path, err)
	}
	return w, nil
}

func open(path string, flags int) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|flags, 0o644)
	if err != nil {
		return nil, fmt.Errorf("write records: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("write records: %s is being written by another run", path)
		}
		return nil, fmt.Errorf("write records: lock %s: %w", path, err)
	}
	return &Writer{f: f}, nil
}

func (w *Writer) endTornLine() error {
	st, err := w.f.Stat()
	if err != nil || st.Size() == 0 {
		return err
	}
	var last [1]byte
	if _, err := w.f.ReadAt(last[:], st.Size()-1); err != nil {
		return err
	}
	if last[0] == '\n' {
		return nil
	}
	return w.write([]byte{'\n'})
}

// Write appends a record. It sets the Type, a Case's ID and a Header's Schema where they are empty, and refuses
// what Check refuses: nothing is written then, and the Writer can go on.
func (w *Writer) Write(r Record) error {
	switch r := r.(type) {
	case *Header:
		if r.Type == "" {
			r.Type = "run"
		}
		if r.Schema == "" {
			r.Schema = Schema
		}
	case *Case:
		if r.Type == "" {
			r.Type = "case"
		}
		if r.ID == "" {
			r.ID = CaseID(r)
		}
	}
	if err := Check(r); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.write(append(line, '\n')); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	if _, header := r.(*Header); header || time.Since(w.synced) >= syncEvery {
		return w.sync()
	}
	return nil
}

func (w *Writer) write(line []byte) error {
	if w.broken != nil {
		return w.broken
	}
	n, err := w.f.Write(line)
	if err == nil && n < len(line) {
		err = io.ErrShortWrite
	}
	if err != nil && n > 0 {
		w.broken = fmt.Errorf("earlier write stopped inside a line: %w", err)
	}
	return err
}

func (w *Writer) sync() error {
	w.synced = time.Now()
	// A pipe or a device cannot be synced and need not be.
	if err := w.f.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("sync records: %w", err)
	}
	return nil
}

// Close puts everything on the disk and closes the file.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.sync(), w.f.Close())
}
