package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	fastjson "github.com/goccy/go-json"
)

// maxLine bounds a line, so that a file that is no run file cannot take all memory.
const maxLine = 16 << 20

// Baselines is the folder of baselines in a folder of runs.
const Baselines = "baselines"

// FileName is the name of the record file in a run's folder.
const FileName = "run.jsonl"

// Files finds the run files of a path: the file itself, the run.jsonl in a folder, or else those of all folders below,
// sorted; but for baselines, which are copies of runs, and of links only those that stand in the folder itself.
func Files(path string) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	if !st.IsDir() {
		return []string{path}, nil
	}
	file := filepath.Join(path, FileName)
	if _, err := os.Stat(file); err == nil {
		return []string{file}, nil
	}
	found, err := filepath.Glob(filepath.Join(escapeGlob(path), "*", FileName))
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	err = filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == Baselines && file != path:
			return filepath.SkipDir
		case !d.IsDir() && d.Name() == FileName:
			found = append(found, filepath.Clean(file))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("read records: %s holds no %s, and no folder below it does", path, FileName)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// escapeGlob makes a path mean itself in a pattern.
func escapeGlob(path string) string {
	var b []byte
	for i := range len(path) {
		if bytes.IndexByte([]byte(`*?[\`), path[i]) >= 0 {
			b = append(b, '\\')
		}
		b = append(b, path[i])
	}
	return string(b)
}

// ReadFile streams the records of a file. See Read.
func ReadFile(path string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(nil, fmt.Errorf("read records: %w", err))
			return
		}
		defer f.Close()
		Read(path, f)(yield)
	}
}

// Read streams the records of r, called name in messages, in their order. A line that is not a record is a
// *Bad with file and line, among the others; reading goes on. The error is one of r itself, and ends the
// stream.
//
// After a header of an unknown schema, which is a *Bad that names it, lines are counted but not interpreted
// until the next header; one more *Bad says how many.
//
// Lines are decoded ahead of the loop on all CPUs. Blank lines are no records and are passed over.
func Read(name string, r io.Reader) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		read(name, r, nil)(func(at Located, err error) bool { return yield(at.Record, err) })
	}
}

// Located is a record and the line it stands on, from 1.
type Located struct {
	Record
	Line int
}

// Lines is Read for those who must say where a record stands.
func Lines(name string, r io.Reader) iter.Seq2[Located, error] { return read(name, r, nil) }

// ReadLines is ReadFile for those who must say where a record stands.
func ReadLines(path string) iter.Seq2[Located, error] { return readLines(path, nil) }

// ReadSummaries is ReadLines for those who need no raw samples, in a fraction of the time: Samples and HDR of all
// metrics are left out. What ReadLines refuses is refused here too.
//
// A Case is the loop's until its next record only, and then becomes another; its strings may be kept. Its maps and
// libraries are those of other cases too: they may be kept, but not changed. Facts and Host may lack the keys that
// are not wanted; nil wants all.
func ReadSummaries(path string, wanted func(key string) bool) iter.Seq2[Located, error] {
	return readLines(path, &summary{wanted})
}

// summary is what of a case is not decoded; a nil one is nothing.
type summary struct {
	wanted func(key string) bool // in Facts and Host; nil for all
}

func readLines(path string, lean *summary) iter.Seq2[Located, error] {
	return func(yield func(Located, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(Located{}, fmt.Errorf("read records: %w", err))
			return
		}
		defer f.Close()
		read(path, f, lean)(yield)
	}
}

func read(name string, r io.Reader, lean *summary) iter.Seq2[Located, error] {
	return func(yield func(Located, error) bool) {
		stop := make(chan struct{})
		defer close(stop)
		foreign := &Bad{File: name}
		skipped := 0
		flush := func() bool {
			if skipped == 0 {
				return true
			}
			foreign.Err = fmt.Errorf("from here on %d lines of the unknown schema were not read", skipped)
			b := *foreign
			foreign.Line, skipped = 0, 0
			return yield(Located{&b, b.Line}, nil)
		}
		inForeign := false
		for b := range decodeAhead(name, r, lean, stop) {
			<-b.decoded
			for i, rec := range b.records {
				header, bad := headerLike(rec)
				if inForeign && !header {
					if skipped++; foreign.Line == 0 {
						foreign.Line = b.at[i]
					}
					continue
				}
				if header {
					if !flush() {
						return
					}
					inForeign = bad
				}
				if !yield(Located{rec, b.at[i]}, nil) {
					return
				}
			}
			b.release()
			if b.err != nil {
				yield(Located{}, fmt.Errorf("read %s: %w", name, b.err))
				return
			}
		}
		flush()
	}
}

// headerLike says whether a record starts a run, and whether that run's schema is unknown.
func headerLike(rec Record) (header, foreign bool) {
	switch rec := rec.(type) {
	case *Header:
		return true, false
	case *Bad:
		var se *SchemaError
		if errors.As(rec.Err, &se) {
			return true, true
		}
	}
	return false, false
}

// batch is a run of lines that one goroutine decodes.
type batch struct {
	name    string
	first   int    // line number of the first line
	buf     []byte // the lines, without their ends
	ends    []int  // where each line ends in buf; -1-end for one that was too long and is not there
	torn    bool   // the last line has no end
	err     error  // of the reader, after these lines
	records []Record
	at      []int         // line numbers of the records
	decoded chan struct{} // closed when records are there
	parts   *parts        // of a lean decoder's cases
}

// batchBytes is enough to make handing over cheap and little enough to keep all CPUs busy on small files.
const batchBytes = 64 << 10

// decodeAhead reads batches and has them decoded by as many goroutines as there are CPUs. The batches come in
// order, possibly before they are decoded.
func decodeAhead(name string, r io.Reader, lean *summary, stop <-chan struct{}) <-chan *batch {
	workers := min(runtime.GOMAXPROCS(0), 8)
	ordered := make(chan *batch, 2*workers)
	jobs := make(chan *batch, 2*workers)
	for range workers {
		go func() {
			d := newDecoder(lean)
			for b := range jobs {
				b.decode(d)
				close(b.decoded)
			}
		}()
	}
	go func() {
		defer close(jobs)
		defer close(ordered)
		br := bufio.NewReaderSize(r, 256<<10)
		line := 1
		for {
			b := readBatch(br, line)
			b.name = name
			line += len(b.ends)
			end := b.err != nil
			if b.err == io.EOF {
				b.err = nil
			}
			jobs <- b // never blocks for good: workers need nobody
			select {
			case ordered <- b:
			case <-stop:
				return
			}
			if end {
				return
			}
		}
	}()
	return ordered
}

// buffers are used again once their lines are decoded: the decoders keep nothing of them.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// readBatch reads whole lines until there are batchBytes of them, or the end. Its err is io.EOF at the end.
func readBatch(br *bufio.Reader, first int) *batch {
	b := &batch{first: first, decoded: make(chan struct{}), buf: (*buffers.Get().(*[]byte))[:0]}
	for len(b.buf) < batchBytes && len(b.ends) < batchBytes/64 && b.err == nil {
		b.readLine(br)
	}
	return b
}

// readLine adds one line to the batch, if there is one. One that is longer than maxLine is passed over.
func (b *batch) readLine(br *bufio.Reader) {
	start := len(b.buf)
	long, some := false, false
	var err error
	for {
		var part []byte
		part, err = br.ReadSlice('\n')
		some = some || len(part) > 0
		b.buf = append(b.buf, part...)
		if len(b.buf)-start > maxLine {
			b.buf, long = b.buf[:start], true
		}
		if err != bufio.ErrBufferFull {
			break
		}
	}
	if err != nil {
		b.err, b.torn = err, some
	}
	if !some {
		return
	}
	if long {
		b.buf = b.buf[:start]
		b.ends = append(b.ends, -1-start)
		return
	}
	if n := len(b.buf); err == nil {
		b.buf = b.buf[:n-1]
	}
	b.ends = append(b.ends, len(b.buf))
}

// allParts are used again once the records of their batch were handed over.
var allParts = sync.Pool{New: func() any { return new(parts) }}

// release gives back what the records of the batch were made of, if they are not the caller's to keep.
func (b *batch) release() {
	if b.parts != nil {
		allParts.Put(b.parts)
		b.parts, b.records = nil, nil
	}
}

func (b *batch) decode(d *decoder) {
	b.records = make([]Record, 0, len(b.ends))
	b.at = make([]int, 0, len(b.ends))
	if d.lean != nil {
		b.parts = allParts.Get().(*parts)
		b.parts.clear()
		d.parts = b.parts
	}
	start := 0
	for i, end := range b.ends {
		var rec Record
		var err error
		if end < 0 {
			err = fmt.Errorf("line is longer than %d bytes", maxLine)
		} else {
			line := b.buf[start:end]
			start = end
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			rec, err = d.line(line)
		}
		if err != nil {
			var syntax *json.SyntaxError
			torn := b.torn && i == len(b.ends)-1 && errors.As(err, &syntax)
			rec = &Bad{File: b.name, Line: b.first + i, Torn: torn, Err: err}
		}
		b.records = append(b.records, rec)
		b.at = append(b.at, b.first+i)
	}
	if buf := b.buf; cap(buf) <= 4*batchBytes {
		buffers.Put(&buf)
	}
	b.buf = nil
}

// line reads one line as the record its type says it is.
func (d *decoder) line(line []byte) (Record, error) {
	var rec Record
	switch kind, err := lineType(line); {
	case err != nil:
		return nil, err
	case kind == "case":
		rec = d.newCase()
	case kind == "run":
		rec = new(Header)
	default:
		return nil, fmt.Errorf("type %q is not \"run\" or \"case\"", kind)
	}
	if err := d.unmarshal(line, rec); err != nil {
		if h, ok := rec.(*Header); ok && h.Schema != "" && h.Schema != Schema {
			return nil, &SchemaError{h.Schema}
		}
		return nil, err
	}
	if err := rec.check(); err != nil {
		return nil, err
	}
	if c, ok := rec.(*Case); ok && d.lean != nil {
		trim(c)
	}
	return rec, nil
}

// plainJSON makes jsontext take what encoding/json takes.
var plainJSON = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// unmarshal reads a line into a fresh rec: as encoding/json would, in a fraction of its time. What is not of the
// plain form goes to a fast decoder that is careless with what is no JSON, so it gets to see valid JSON only, by
// the fastest strict parser; a fuzz test holds them all to encoding/json, which also words the errors.
func (d *decoder) unmarshal(line []byte, rec Record) error {
	if c, ok := rec.(*Case); ok {
		if d.plain(line, c) {
			return nil
		}
		*c = Case{}
	}
	if jsontext.Value(line).IsValid(plainJSON...) && fastjson.Unmarshal(line, rec) == nil {
		return nil
	}
	switch rec := rec.(type) {
	case *Header:
		*rec = Header{}
	case *Case:
		*rec = Case{}
	}
	return wordError(json.Unmarshal(line, rec))
}

// wordError says what is wrong with valid JSON in the words of the file instead of those of Go.
func wordError(err error) error {
	var te *json.UnmarshalTypeError
	if !errors.As(err, &te) {
		return err
	}
	if te.Field == "" {
		return fmt.Errorf("a JSON %s is no record", te.Value)
	}
	return fmt.Errorf("key %q cannot be a JSON %s", te.Field, te.Value)
}

// lineType finds the type of a line; our own writer puts it first, so that it need not be parsed twice.
func lineType(line []byte) (string, error) {
	for _, kind := range []string{"case", "run"} {
		if bytes.HasPrefix(line, []byte(`{"type":"`+kind+`",`)) {
			return kind, nil
		}
	}
	var t struct {
		Type string `json:"type"`
	}
	err := json.Unmarshal(line, &t)
	return t.Type, wordError(err)
}
