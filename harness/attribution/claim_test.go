package attribution

import (
	"strings"
	"testing"

	"gic/harness/record"
)

// What the rows cannot support stands above the numbers.
func TestClaim(t *testing.T) {
	op := map[string]string{"op": "put", "size": "8"}
	for _, tt := range []struct {
		name   string
		change func(*record.Case)
		want   []string
	}{
		{"host", func(*record.Case) {}, []string{"nic=soft", "device=host", "no claim"}},
		{"crowded", func(c *record.Case) { c.Host["oversubscribed"] = true }, []string{"oversubscribed", "no claim"}},
		{"gpu", func(c *record.Case) { c.Device = "cuda" }, []string{"nic=soft", "issue times are the GPU's own"}},
		{"nic", func(c *record.Case) { c.Device, c.NIC = "cuda", "mlx5" }, nil},
	} {
		c := synthetic(t, "minigda", "op", op, nil, 1, 0)
		tt.change(c[0])
		a, err := Analyse(newRun(c), Options{})
		if err != nil {
			t.Fatal(err)
		}
		claim := a.Claim()
		if (tt.want == nil) != (claim == "") {
			t.Errorf("%s: %q", tt.name, claim)
		}
		for _, w := range tt.want {
			if !strings.Contains(claim, w) {
				t.Errorf("%s: %q does not say %q", tt.name, claim, w)
			}
		}
	}
}
