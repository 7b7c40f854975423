package html

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
)

// maxEmbedded bounds a file within the page, compressed: browsers have to hold all of it as text.
const maxEmbedded = 24 << 20

// attachment is a file within the page, gzip in base64.
type attachment struct {
	name, what string
	buf        bytes.Buffer
	gz         *gzip.Writer
	size       int64
	full       bool
}

// Attach begins a file that the page offers for download; what is written until Render is its content. One
// that is too large is left out, which the page says.
func (p *Page) Attach(name, what string) io.Writer {
	a := &attachment{name: name, what: what}
	a.gz, _ = gzip.NewWriterLevel(&a.buf, gzip.BestSpeed) // the level is valid
	p.files = append(p.files, a)
	return a
}

// Write implements io.Writer. It always succeeds.
func (a *attachment) Write(b []byte) (int, error) {
	a.size += int64(len(b))
	if !a.full {
		a.gz.Write(b)
		if a.buf.Len() > maxEmbedded {
			a.full = true
			a.buf = bytes.Buffer{}
		}
	}
	return len(b), nil
}

// fileData is an attachment for the template.
type fileData struct {
	ID, Name, What, Size string
	Base64               template.HTML // letters, digits, +, / and = only
	TooLarge             bool
}

func (a *attachment) finish(i int) (fileData, error) {
	f := fileData{ID: fmt.Sprintf("file-%d", i+1), Name: a.name, What: a.what, Size: bytesText(a.size), TooLarge: a.full}
	if a.full {
		return f, nil
	}
	if err := a.gz.Close(); err != nil {
		return f, fmt.Errorf("compress %s: %w", a.name, err)
	}
	f.Base64 = template.HTML(base64.StdEncoding.EncodeToString(a.buf.Bytes()))
	return f, nil
}

func bytesText(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
