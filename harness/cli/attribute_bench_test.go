package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkPlantedCosts plants costs of known size into the floor on this machine's software NIC, by the wall clock, and
// tells how much of each the counts find: 1 is all of it. The unit costs come from other rows than the one that poses: a
// fence and a lock each alone, for both together; the doorbell of all batches, for a batch of 16. Times on few CPUs
// scatter; the tests with virtual times (harness/attribution) are those that fail.
func BenchmarkPlantedCosts(b *testing.B) {
	plugins := filepath.Join("..", "..", "build")
	if list, _ := filepath.Glob(filepath.Join(plugins, "libminigda.so")); len(list) == 0 {
		b.Skip("no libminigda.so in build/: make plugins")
	}
	b.Setenv(pluginPathEnv, plugins)
	for _, p := range []struct {
		name, metric, pose string
		run                []string
	}{
		{"fence+lock", "issue", "minigda:order=sys-fence,sharing=lock", []string{"--workload", "op:size=8,iterations=50,warmup=10,posts=256,rounds=40",
			"--backend", "minigda:order=gpu-fence|sys-fence,sharing=exclusive|lock"}},
		{"batch", "message_rate", "minigda:order=sys-fence,batch=16", []string{"--workload", "rate:threads=1,messages=4096",
			"--backend", "minigda:order=sys-fence,batch=1|2|4|16"}},
	} {
		b.Run(p.name, func(b *testing.B) {
			for b.Loop() {
				dir := filepath.Join(b.TempDir(), "run")
				benchGic(b, append(append([]string{"run"}, p.run...), "--repeat", "5", "--out", dir)...)
				found, gap := byCounts(b, benchGic(b, "attribute", dir, "--as", p.pose, "--format", "json"), p.metric)
				b.ReportMetric(gap*1e9, "planted-ns")
				b.ReportMetric(found/gap, "found/planted")
			}
		})
	}
}

// benchGic runs gic and returns what it printed.
func benchGic(b *testing.B, args ...string) []byte {
	b.Helper()
	var stdout, stderr bytes.Buffer
	if status := Run(&stdout, &stderr, args); status != exitOK {
		b.Fatalf("gic %s: status %d: %s", strings.Join(args, " "), status, stderr.String())
	}
	return stdout.Bytes()
}

// byCounts is what the counts explain of the one gap in a metric, and the gap.
func byCounts(b *testing.B, text []byte, metric string) (explained, gap float64) {
	b.Helper()
	var out struct {
		Runs []struct {
			Gaps []struct {
				Metric  string
				Gap     struct{ Value float64 }
				Methods []struct {
					Method string
					Parts  []struct{ Time struct{ Value float64 } }
				}
			}
		}
	}
	if err := json.Unmarshal(text, &out); err != nil {
		b.Fatal(err)
	}
	for _, r := range out.Runs {
		for _, g := range r.Gaps {
			if g.Metric != metric {
				continue
			}
			for _, m := range g.Methods {
				if strings.HasPrefix(m.Method, "counts") {
					for _, p := range m.Parts {
						explained += p.Time.Value
					}
				}
			}
			return explained, g.Gap.Value
		}
	}
	b.Fatalf("no gap in %s", metric)
	return 0, 0
}
