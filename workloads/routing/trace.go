package routing

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// traced takes the experts of each token from a file: one line per token in the order of rank and token, TopK
// integers separated by blanks or commas, -1 for none. Empty lines and what follows a # are skipped; lines beyond
// the tokens needed are not read.
func (c Config) traced(path string) (func(r *random, index int, experts []int32), error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("routing=%s: %w", c.Spec, err)
	}
	defer f.Close()
	trace, err := c.readTrace(f)
	if err != nil {
		return nil, fmt.Errorf("routing=%s: %w", c.Spec, err)
	}
	return func(_ *random, index int, experts []int32) { copy(experts, trace[index*c.TopK:]) }, nil
}

func (c Config) readTrace(r io.Reader) ([]int32, error) {
	need := c.Ranks * c.Tokens
	trace := make([]int32, 0, need*c.TopK)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	number := 0
	for len(trace) < need*c.TopK && lines.Scan() {
		number++
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' || c == '\t' || c == '\r' })
		if len(fields) == 0 {
			continue
		}
		if len(fields) != c.TopK {
			return nil, fmt.Errorf("line %d: %d experts, expected topk=%d", number, len(fields), c.TopK)
		}
		first := len(trace)
		for _, field := range fields {
			e, err := strconv.Atoi(field)
			if err != nil || e < Masked || e >= c.Experts {
				return nil, fmt.Errorf("line %d: %q is not allowed: an expert in 0..%d, or -1", number, field, c.Experts-1)
			}
			if e != Masked && contains(trace[first:], int32(e)) {
				return nil, fmt.Errorf("line %d: expert %d twice", number, e)
			}
			trace = append(trace, int32(e))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", number+1, err)
	}
	if len(trace) < need*c.TopK {
		return nil, fmt.Errorf("line %d: the file ends after %d tokens, expected %d (ranks x tokens)", number, len(trace)/c.TopK, need)
	}
	return trace, nil
}
