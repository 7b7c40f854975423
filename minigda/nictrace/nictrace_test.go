package nictrace

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sample has every kind of record, indices that wrap, times that step back, and changes of QP and of shape.
func sample() *Trace {
	return &Trace{
		Rank: 1, Ranks: 3, Virtual: true, Watch: 1, Lost: 2, Profile: "cx7-200",
		QPs:     []QP{{Number: 0x100, CQ: 0x80, Peer: 0, RemoteQP: 0x101, Depth: 64}, {Number: 0x101, CQ: 0x81, Peer: 2, RemoteQP: 0x100, Depth: 1024, CQDepth: 512}},
		Regions: []Region{{Addr: 0x7f0000001000, Bytes: 1 << 20, Key: 0x103, Access: 15}},
		Records: []Record{
			{Time: 10, QP: -1, Kind: Mark, Index: 0},
			{Time: 2000, QP: 0, Kind: Doorbell, Index: 0xffff},
			{Time: 2000, QP: 0, Kind: WQE, Index: 0xfffd, Opcode: RDMAWrite, DS: 3, Bytes: 8, Inline: true, Raddr: 0x7f0000001008},
			{Time: 2001, QP: 0, Kind: WQE, Index: 0xfffe, Opcode: RDMAWrite, DS: 3, Bytes: 8, Inline: true, Raddr: 0x7f0000001010},
			{Time: 1990, QP: 1, Kind: WQE, Index: 7, Opcode: AtomicFA, FMCESE: CQUpdate | Fence, DS: 4, Bytes: 8, Raddr: 0x10},
			{Time: 1995, QP: -1, Kind: Mark, Index: 1},
			{Time: 1996, QP: 1, Kind: CQE, Index: 7},
			{Time: 1996, QP: 0, Kind: CQE, Index: 0xffff, Opcode: 13, Syndrome: 0x13},
			{Time: 3000, QP: 0, Kind: Doorbell, Index: 3},
			{Time: 3000, QP: 0, Kind: WQE, Index: 0, Opcode: RDMAWrite, DS: 63, Bytes: 1 << 30, Raddr: 0},
			{Time: 3000, QP: 0, Kind: WQE, Index: 16, Opcode: 0x77, DS: 1},
		},
	}
}

func encode(t *testing.T, tr *Trace) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, tr); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	want := sample()
	got, err := Read(bytes.NewReader(encode(t, want)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if run := got.LastRun(); len(run) != 4 || run[0].Index != 0xffff || run[3].QP != 1 {
		t.Errorf("the run between the marks: %+v", run)
	}
}

// Steady posting takes 12 bytes for a WQE, its doorbell and its CQE together, not the 96 of the NIC's memory.
func TestCompact(t *testing.T) {
	tr := sample()
	tr.Records = nil
	for i := range 1000 {
		at := uint64(1000 + 30*i)
		tr.Records = append(tr.Records, Record{Time: at, Kind: Doorbell, Index: uint16(i + 1)},
			Record{Time: at, Kind: WQE, Index: uint16(i), Opcode: RDMAWrite, FMCESE: CQUpdate, DS: 3, Bytes: 8, Inline: true, Raddr: uint64(4096 + 8*(i%64))},
			Record{Time: at + 5, Kind: CQE, Index: uint16(i)})
	}
	if n := len(encode(t, tr)); n > 12*1000 {
		t.Errorf("%d bytes for 3000 records", n)
	}
}

// seal puts the right checksum behind a body.
func seal(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.ChecksumIEEE(body))
}

func TestBadFiles(t *testing.T) {
	good := encode(t, sample())
	body := good[:len(good)-4]
	const header = 8 + 4*4 + 3*8 + 32 + 2*4
	first := header + 2*24 + 24 // the first record
	edit := func(at int, b ...byte) []byte {
		x := bytes.Clone(body)
		copy(x[at:], b)
		return seal(x)
	}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":              {nil, "ends after 0 bytes, within the header"},
		"other":              {[]byte("{\"type\":\"run\"}"), `begins with "{\"type\":", not with SNTRACE2`},
		"version":            {append([]byte("SNTRACE1"), good[8:]...), `version "1"; allowed: "2"`},
		"rank":               {edit(8, 3), "rank 3 of 3"},
		"depth":              {edit(header+16, 65), "depth of 65 blocks"},
		"cut in the QPs":     {good[:header+5], "within the list of QPs"},
		"cut in a record":    {good[:first+1], "within record 1 of 11"},
		"cut in the sum":     {good[:len(good)-1], "within the checksum"},
		"more":               {append(bytes.Clone(good), 0), "bytes behind the 11 records"},
		"no such kind":       {edit(first, 0x05), "record 1 of 11 begins with 0x05"},
		"no such bit":        {edit(first, 0x84), "record 1 of 11 begins with 0x84"},
		"no QP yet":          {edit(first, byte(WQE)|sameQP), "is of none of the 2 QPs"},
		"number of 11":       {edit(first+1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "a number of more than 64 bits"},
		"payload is damaged": {append(bytes.Clone(good[:len(good)-5]), good[len(good)-5]^1, good[len(good)-4], good[len(good)-3], good[len(good)-2], good[len(good)-1]), "checksum"},
	} {
		_, err := Read(bytes.NewReader(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", name, err, c.want)
		}
	}
}

// No truncation and no flipped bit goes unnoticed.
func TestEveryDamage(t *testing.T) {
	good := encode(t, sample())
	for n := range good {
		if _, err := Read(bytes.NewReader(good[:n])); err == nil {
			t.Errorf("cut to %d bytes: no error", n)
		}
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[n] ^= 1 << bit
			if _, err := Read(bytes.NewReader(bad)); err == nil {
				t.Errorf("bit %d of byte %d flipped: no error", bit, n)
			}
		}
	}
}

// Whatever is read is written as it was; the rest is refused with one line.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := Write(&b, sample()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes()[:b.Len()-4])
	f.Add([]byte(Magic))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, file := range [][]byte{body, seal(body)} {
			tr, err := Read(bytes.NewReader(file))
			if err != nil {
				if strings.ContainsAny(err.Error(), "\n\x00") {
					t.Errorf("%q", err)
				}
				continue
			}
			again, err := Read(bytes.NewReader(encode(t, tr)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tr, again); diff != "" {
				t.Errorf("(-read +written and read):\n%s", diff)
			}
		}
	})
}
