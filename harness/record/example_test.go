package record

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata")

// The committed example is read in full and written back byte for byte: a change of the format shows here.
func TestExampleReadsAndWritesBack(t *testing.T) {
	const path = "testdata/example.jsonl"
	if *update {
		rng := rand.New(rand.NewPCG(1, 1))
		skipped := &Case{
			Workload: "op", Axes: map[string]string{"op": "put", "size": "8"},
			Backend: "nvshmem", Config: map[string]string{"transport": "ibgda"},
			NIC: "soft", Device: "host", Ranks: 2, Status: Skipped, Reason: "no CUDA device",
		}
		if err := os.WriteFile(path, lines(t, testHeader(), testCase(rng, 0), testCase(rng, 1), skipped), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var records []Record
	for rec, err := range ReadFile(path) {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, rec)
	}
	if len(records) != 4 {
		t.Errorf("%d records, want 4", len(records))
	}
	if got := string(lines(t, records...)); got != contents(t, path) {
		t.Errorf("%s does not come back as it was; -update and git diff show how", path)
	}
}
