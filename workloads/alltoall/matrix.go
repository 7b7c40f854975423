package alltoall

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
)

// maxPart bounds one entry of a matrix: a message's length has 32 bits, and mlx5 takes at most 2 GiB.
const maxPart = 1 << 30

// parseMatrix makes the byte matrix of an axis value, [sender][receiver].
func parseMatrix(value string, ranks int, bytes uint64) ([][]uint64, error) {
	kind, arg, _ := strings.Cut(value, ":")
	switch {
	case value == "uniform":
		return filled(ranks, func(int) uint64 { return bytes }), nil
	case kind == "skew":
		x, err := strconv.ParseFloat(arg, 64)
		if err != nil || !(x >= 1 && x <= 1e6) {
			return nil, fmt.Errorf("matrix=%s is not allowed: skew:<x> with x in 1..1000000", value)
		}
		hot := math.Round(x * float64(bytes))
		if hot > maxPart {
			return nil, fmt.Errorf("matrix=%s is not allowed with bytes=%d: a part of at most %d bytes", value, bytes, maxPart)
		}
		return filled(ranks, func(to int) uint64 {
			if to == 0 {
				return uint64(hot)
			}
			return bytes
		}), nil
	case kind == "file" && arg != "":
		f, err := os.Open(arg)
		if err != nil {
			return nil, fmt.Errorf("matrix=%s: %w", value, err)
		}
		defer f.Close()
		m, err := readMatrix(f, ranks)
		if err != nil {
			return nil, fmt.Errorf("matrix=%s: %w", value, err)
		}
		return m, nil
	}
	return nil, fmt.Errorf("matrix=%s is not allowed: uniform | skew:<x> | file:<path>", value)
}

func filled(ranks int, part func(to int) uint64) [][]uint64 {
	m := make([][]uint64, ranks)
	for from := range m {
		m[from] = make([]uint64, ranks)
		for to := range m[from] {
			m[from][to] = part(to)
		}
	}
	return m
}

// readMatrix reads ranks lines of ranks integers, separated by blanks or commas. Empty lines and what follows a
// # are skipped.
func readMatrix(r io.Reader, ranks int) ([][]uint64, error) {
	var m [][]uint64
	total := uint64(0)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	number := 0
	for lines.Scan() {
		number++
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' || c == '\t' || c == '\r' })
		if len(fields) == 0 {
			continue
		}
		if len(m) == ranks {
			return nil, fmt.Errorf("line %d: more than %d rows, one per rank", number, ranks)
		}
		if len(fields) != ranks {
			return nil, fmt.Errorf("line %d: %d values, expected %d, one per rank", number, len(fields), ranks)
		}
		row := make([]uint64, ranks)
		for i, field := range fields {
			v, err := strconv.ParseUint(field, 10, 64)
			if err != nil || v > maxPart {
				return nil, fmt.Errorf("line %d: %q is not allowed: an integer in 0..%d", number, field, maxPart)
			}
			row[i] = v
			total += v
		}
		m = append(m, row)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", number+1, err)
	}
	if len(m) != ranks {
		return nil, fmt.Errorf("line %d: %d rows, expected %d, one per rank", number, len(m), ranks)
	}
	if total == 0 {
		return nil, fmt.Errorf("line %d: the matrix has no bytes to send", number)
	}
	return m, nil
}

// describe returns the sum of a matrix and the hash of its entries, row by row as 8 little-endian bytes each.
func describe(m [][]uint64) (total uint64, hash string) {
	h := sha256.New()
	for _, row := range m {
		for _, v := range row {
			total += v
			h.Write(binary.LittleEndian.AppendUint64(nil, v))
		}
	}
	return total, hex.EncodeToString(h.Sum(nil))
}
