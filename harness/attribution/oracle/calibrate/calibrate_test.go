package calibrate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gic/harness/attribution/oracle"
	"gic/harness/record"
)

// grid is the conditions of the records that a thorough run has.
func grid() []oracle.Query {
	var list []oracle.Query
	add := func(quantity string, q oracle.Conditions) {
		list = append(list, oracle.Query{Quantity: quantity, Conditions: q})
	}
	for _, quantity := range []string{"issue", "put_completion", "rtt"} {
		for _, order := range []string{"gpu-fence", "gpu-release", "sys-fence"} {
			for _, size := range []string{"8", "28", "60"} {
				if quantity == "rtt" && size != "8" {
					continue // the platform knows the peer's part for 8 B alone
				}
				add(quantity, oracle.Conditions{"backend": "minigda", "order": order, "size": size, "inline": "on", "batch": "1", "sharing": "exclusive"})
			}
		}
		add(quantity, oracle.Conditions{"backend": "minigda", "order": "gpu-fence", "size": "8", "inline": "off", "batch": "1", "sharing": "exclusive"})
		for _, handoff := range []string{"tuned", "baseline"} {
			add(quantity, oracle.Conditions{"backend": "miniproxy", "handoff": handoff, "payload": "posted", "size": "8", "inline": "on", "batch": "16", "workers": "1", "cpu": "cold"})
		}
	}
	rate := func(q oracle.Conditions) {
		q["backend"], q["order"], q["size"] = "minigda", "gpu-fence", "8"
		add("message_rate", q)
	}
	for _, batch := range []string{"1", "4", "16"} {
		for _, threads := range []string{"1", "4", "16"} {
			rate(oracle.Conditions{"sharing": "exclusive", "threads": threads, "qps": threads, "batch": batch, "sms": threads})
		}
		add("message_rate", oracle.Conditions{"backend": "miniproxy", "handoff": "tuned", "size": "8", "threads": "32", "workers": "1", "batch": batch, "cpu": "cold"})
	}
	for _, threads := range []string{"64", "128"} {
		rate(oracle.Conditions{"sharing": "exclusive", "threads": threads, "qps": threads, "batch": "16", "sms": threads})
	}
	rate(oracle.Conditions{"sharing": "lock", "threads": "32", "qps": "1", "batch": "1", "sms": "1"})
	rate(oracle.Conditions{"sharing": "handoff", "threads": "256", "qps": "1", "batch": "32", "sms": "1"})
	rate(oracle.Conditions{"sharing": "warp", "threads": "32", "qps": "1", "batch": "32", "sms": "1"})
	rate(oracle.Conditions{"sharing": "warp", "threads": "256", "qps": "1", "batch": "32", "sms": "1"})
	for _, size := range []string{"1024", "4096", "16384", "65536"} {
		add("goodput", oracle.Conditions{"backend": "minigda", "order": "gpu-fence", "sharing": "exclusive", "size": size, "threads": "64", "qps": "64", "batch": "16", "sms": "64"})
	}
	return list
}

// records makes records that say what a platform predicts, each value off by at most noise.
func records(t *testing.T, p *oracle.Platform, noise float64) *Records {
	t.Helper()
	r := NewRecords()
	random := rand.New(rand.NewPCG(1, 2))
	workload := map[string]string{"issue": "op", "put_completion": "op", "rtt": "op", "message_rate": "rate", "goodput": "goodput"}
	for i, q := range grid() {
		a := p.Predict(q)
		if !a.OK() {
			t.Fatalf("%s %v: %s", q.Quantity, q.Conditions, a.None)
		}
		config := map[string]string{}
		for k, v := range q.Conditions {
			config[k] = v
		}
		for index := range 3 {
			c := &record.Case{ID: fmt.Sprint(i), Index: index, Workload: workload[q.Quantity], Backend: q.Conditions["backend"], Config: config,
				NIC: "mlx5", Device: "cuda", Ranks: 2, Status: record.OK,
				Metrics: []record.Metric{{Name: q.Quantity, P50: a.Value * (1 + noise*(2*random.Float64()-1))}}}
			if err := r.AddCase("synthetic", c); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.runs, r.hosts = []string{"synthetic"}, []string{"P-IB"}
	return r
}

// A platform's records calibrate back to its constants.
func TestRoundTrip(t *testing.T) {
	p, err := oracle.Load("P-IB")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ noise, tolerance float64 }{{0, 1e-4}, {0.002, 0.05}} {
		res, err := records(t, p, c.noise).Fit("again")
		if err != nil {
			t.Fatal(err)
		}
		res.Refused = slices.DeleteFunc(res.Refused, func(line string) bool { return strings.HasPrefix(line, "scoped, ") }) // see TestScopes
		if len(res.Refused) > 0 {
			t.Errorf("noise %g: refused: %s", c.noise, strings.Join(res.Refused, "; "))
		}
		data, err := res.Platform.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		again, err := oracle.Parse(data)
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		for _, want := range []struct {
			name       string
			conditions oracle.Conditions
		}{
			{"issue", oracle.Conditions{"backend": "minigda", "order": "gpu-fence", "inline": "on"}}, {"issue", oracle.Conditions{"backend": "minigda", "order": "sys-fence"}},
			{"issue", oracle.Conditions{"backend": "miniproxy", "handoff": "tuned"}}, {"issue", oracle.Conditions{"backend": "miniproxy", "handoff": "baseline"}},
			{"issue_segment", oracle.Conditions{"backend": "minigda"}}, {"cqe", nil}, {"fetch", nil}, {"arrive", nil},
			{"completion", oracle.Conditions{"backend": "miniproxy", "handoff": "baseline"}}, {"notice", oracle.Conditions{"backend": "miniproxy", "handoff": "baseline"}},
			{"wqe", oracle.Conditions{"backend": "minigda"}}, {"doorbell_wqe", oracle.Conditions{"backend": "minigda"}},
			{"lock", oracle.Conditions{"backend": "minigda"}}, {"slot", oracle.Conditions{"backend": "minigda"}}, {"warp", oracle.Conditions{"backend": "minigda"}},
			{"qp_rate", oracle.Conditions{"backend": "minigda"}}, {"nic_rate", nil},
			{"post", oracle.Conditions{"backend": "miniproxy", "cpu": "cold"}}, {"wr", oracle.Conditions{"backend": "miniproxy", "cpu": "cold"}},
			{"link", nil}, {"header", nil}, {"mtu", nil},
		} {
			a, b := value(p, want.name, want.conditions), value(again, want.name, want.conditions)
			tolerance := c.tolerance
			if want.name == "header" || want.name == "lock" {
				tolerance *= 4 // a small difference of large numbers
			}
			if !(math.Abs(b/a-1) <= tolerance) { // NaN fails too
				t.Errorf("noise %g: %s %v is %g, expected %g", c.noise, want.name, want.conditions, b, a)
			}
		}
	}
}

// value is a constant whatever its validity.
func value(p *oracle.Platform, name string, q oracle.Conditions) float64 {
	for _, k := range p.Constants {
		match := k.Name == name
		for key, v := range k.For {
			match = match && (q[key] == v || q[key] == "")
		}
		if match {
			v, _, _ := oracle.Base(k.Value, k.Unit)
			return v
		}
	}
	return math.NaN()
}

// What each queue adds to a completion of all of them comes back; P-IB has no such constant, so it is put in by hand.
func TestScopes(t *testing.T) {
	const base, each = 3e-6, 0.5e-6
	r := NewRecords()
	for _, qps := range []int{1, 2, 8, 32} {
		c := &record.Case{Workload: "op", Backend: "minigda", NIC: "soft", Device: "host", Ranks: 2, Status: record.OK,
			Axes:    map[string]string{"op": "put", "size": "8"},
			Config:  map[string]string{"order": "gpu-fence", "sharing": "exclusive", "scope": "all", "qps": fmt.Sprint(qps), "batch": "1", "inline": "on"},
			Metrics: []record.Metric{{Name: "put_completion", P50: base + float64(qps)*each}}}
		if err := r.AddCase("a", c); err != nil {
			t.Fatal(err)
		}
	}
	res, err := r.Fit("x")
	if err != nil {
		t.Fatal(err)
	}
	q := oracle.Conditions{"backend": "minigda", "order": "gpu-fence", "scope": "all", "qps": "16", "queues": "16", "size": "8", "inline": "on"}
	if a := res.Platform.Predict(oracle.Query{Quantity: "put_completion", Conditions: q}); !(math.Abs(a.Value/(base+16*each)-1) <= 1e-6) {
		t.Errorf("16 queues: %v %q", a.Value, a.None)
	}
	if a := res.Platform.Predict(oracle.Query{Quantity: "put_completion", Conditions: q.With("queues", "64", "qps", "64")}); a.OK() {
		t.Errorf("64 queues were not sampled, yet %v is predicted", a.Value)
	}
}

// Threads are predicted as far as they add up, 4 of 16 here.
func TestLinear(t *testing.T) {
	r := NewRecords()
	for _, threads := range []int{1, 2, 4, 8, 16} {
		for _, batch := range []int{1, 16} {
			v := float64(threads) / (100e-9 + 400e-9/float64(batch))
			if threads > 4 {
				v *= 0.7
			}
			c := &record.Case{Workload: "rate", Backend: "minigda", NIC: "soft", Device: "host", Ranks: 2, Status: record.OK,
				Axes:    map[string]string{"size": "8", "threads": fmt.Sprint(threads)},
				Config:  map[string]string{"order": "gpu-fence", "sharing": "exclusive", "qps": fmt.Sprint(threads), "batch": fmt.Sprint(batch)},
				Metrics: []record.Metric{{Name: "message_rate", P50: v}}}
			if err := r.AddCase("a", c); err != nil {
				t.Fatal(err)
			}
		}
	}
	res, err := r.Fit("x")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range res.Platform.Constants {
		if k.Name == "wqe" && k.Valid["threads"] != "1..4" {
			t.Errorf("wqe is valid for threads=%s, expected 1..4", k.Valid["threads"])
		}
	}
	if got := value(res.Platform, "wqe", nil); !(math.Abs(got/100e-9-1) <= 1e-6) {
		t.Errorf("wqe is %g, expected 100 ns", got)
	}
}

// Round trips that the model does not describe do not take the rest along.
func TestNoisyRoundTrips(t *testing.T) {
	r := NewRecords()
	for i, order := range []string{"gpu-fence", "sys-fence", "gpu-release"} {
		for _, m := range []struct {
			name  string
			value float64
		}{{"issue", 1e-6 * float64(i+1)}, {"put_completion", 3e-6 + 1e-6*float64(i+1)}, {"rtt", []float64{4e-6, 90e-6, 1.5e-3}[i]}} {
			c := &record.Case{Workload: "op", Backend: "minigda", NIC: "soft", Device: "host", Ranks: 2, Status: record.OK,
				Axes: map[string]string{"op": "put", "size": "8"}, Config: map[string]string{"order": order, "sharing": "exclusive", "qps": "1", "batch": "1", "inline": "on"},
				Metrics: []record.Metric{{Name: m.name, P50: m.value}}}
			if err := r.AddCase("a", c); err != nil {
				t.Fatal(err)
			}
		}
	}
	res, err := r.Fit("x")
	if err != nil {
		t.Fatal(err)
	}
	if got := value(res.Platform, "cqe", nil); !(math.Abs(got/3e-6-1) <= 1e-6) {
		t.Errorf("cqe is %g, expected 3 us", got)
	}
	if got := value(res.Platform, "arrive", nil); !math.IsNaN(got) {
		t.Errorf("arrive is %g, expected none", got)
	}
	if !slices.ContainsFunc(res.Refused, func(line string) bool {
		return strings.HasPrefix(line, "issue, put_completion, rtt together: the model does not describe the 9 points")
	}) {
		t.Errorf("refused: %s", strings.Join(res.Refused, "\n"))
	}
}

// Workers and rings of a proxy: what each ring adds, and up to how many workers the rate is theirs.
func TestWorkers(t *testing.T) {
	r := NewRecords()
	rate := func(workers, rings, batch float64) float64 {
		v := workers / ((300e-9+5e-9*rings/workers)/batch + 50e-9)
		if workers > 4 {
			v /= 2 // more do not help
		}
		return v
	}
	for _, workers := range []int{1, 2, 4, 8} {
		for _, rings := range []int{8, 32} {
			for _, batch := range []int{1, 16} {
				c := &record.Case{Workload: "rate", Backend: "miniproxy", NIC: "soft", Device: "host", Ranks: 2, Status: record.OK,
					Axes:    map[string]string{"size": "8", "threads": "32"},
					Config:  map[string]string{"handoff": "tuned", "workers": fmt.Sprint(workers), "rings": fmt.Sprint(rings), "batch": fmt.Sprint(batch), "ring_mode": "private"},
					Metrics: []record.Metric{{Name: "message_rate", P50: rate(float64(workers), float64(rings), float64(batch))}}}
				if err := r.AddCase("a", c); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	res, err := r.Fit("x")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"post": 300e-9, "ring": 5e-9, "wr": 50e-9} {
		if got := value(res.Platform, name, nil); !(math.Abs(got/want-1) <= 1e-6) {
			t.Errorf("%s is %g, expected %g", name, got, want)
		}
	}
	q := oracle.Conditions{"backend": "miniproxy", "handoff": "tuned", "size": "8", "workers": "3", "rings": "16", "batch": "4"}
	if a := res.Platform.Predict(oracle.Query{Quantity: "message_rate", Conditions: q}); !(math.Abs(a.Value/rate(3, 16, 4)-1) <= 1e-6) {
		t.Errorf("3 workers, 16 rings: %v %q, expected %v", a.Value, a.None, rate(3, 16, 4))
	}
	if a := res.Platform.Predict(oracle.Query{Quantity: "message_rate", Conditions: q.With("workers", "8")}); a.OK() {
		t.Errorf("8 workers do not scale, yet %v is predicted", a.Value)
	}
}

// What the fitted platform predicts stays within what was sampled.
func TestValidity(t *testing.T) {
	p, err := oracle.Load("P-IB")
	if err != nil {
		t.Fatal(err)
	}
	res, err := records(t, p, 0).Fit("again")
	if err != nil {
		t.Fatal(err)
	}
	q := oracle.Query{Quantity: "message_rate", Conditions: oracle.Conditions{"backend": "minigda", "batch": "64"}.WithDefaults()}
	if a := res.Platform.Predict(q); a.OK() || !strings.Contains(a.None, "batch=64 is outside its validity batch=1..16") {
		t.Errorf("batch=64: %v %q", a.Value, a.None)
	}
	q = oracle.Query{Quantity: "goodput", Conditions: oracle.Conditions{"backend": "minigda", "size": "1M"}.WithDefaults()}
	if a := res.Platform.Predict(q); a.OK() {
		t.Errorf("1 MiB was not sampled, yet %v is predicted", a.Value)
	}
	want := map[string]string{"arrive": "8", "cqe": "8..60", "issue_segment": "28..60", "fetch": "8"}
	for _, k := range res.Platform.Constants {
		if size := want[k.Name]; size != "" && k.Valid["size"] != size {
			t.Errorf("%s was sampled over size=%s, its validity is %s", k.ID(), size, k.Valid["size"])
		}
		if k.Name != "mtu" && (k.Fit == "" || k.Source == "") {
			t.Errorf("%s says neither its fit nor its source: %+v", k.ID(), k)
		}
	}
}

// What the records cannot tell is refused, each with one line.
func TestRefused(t *testing.T) {
	r := NewRecords()
	add := func(workload, metric string, value float64, config map[string]string, change func(*record.Case)) error {
		c := &record.Case{Workload: workload, Backend: config["backend"], Config: config, NIC: "soft", Device: "host", Ranks: 2, Status: record.OK,
			Metrics: []record.Metric{{Name: metric, P50: value}}}
		if change != nil {
			change(c)
		}
		return r.AddCase("a.jsonl", c)
	}
	one := map[string]string{"backend": "minigda", "order": "gpu-fence", "sharing": "exclusive", "size": "8", "threads": "1", "qps": "1", "batch": "1", "inline": "on"}
	if _, err := r.Fit("x"); err == nil {
		t.Error("no records make a platform")
	}
	if err := add("rate", "message_rate", 1e6, one, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Fit("x"); err == nil || !strings.Contains(err.Error(), "wqe, doorbell_wqe: rates of one minigda thread with 1 batch sizes; at least 2 are needed") {
		t.Errorf("one rate: %v", err)
	}
	if err := add("op", "issue", 1e-6, one, nil); err != nil {
		t.Fatal(err)
	}
	res, err := r.Fit("x")
	if err != nil {
		t.Fatal(err)
	}
	if res.Platform.NIC != "soft" || res.Platform.Device != "host" {
		t.Errorf("platform is of nic=%s device=%s", res.Platform.NIC, res.Platform.Device)
	}
	for _, want := range []string{"wqe, doorbell_wqe:", "post, wr:", "qp_rate:", "nic_rate:", "link, header:", "cqe, arrive, fetch:", "issue_segment:"} {
		n := 0
		for _, line := range res.Refused {
			if strings.HasPrefix(line, want) {
				n++
			}
			if strings.Contains(line, "\n") {
				t.Errorf("more than one line: %q", line)
			}
		}
		if n != 1 {
			t.Errorf("%d lines begin with %q\n%s", n, want, strings.Join(res.Refused, "\n"))
		}
	}
	// Skipped, failed and unverified records do not count; another NIC is refused.
	before := len(r.values)
	for _, status := range []record.Status{record.Skipped, record.Failed, record.Timeout, record.Unverified} {
		if err := add("op", "issue", 5e-6, map[string]string{"backend": "minigda", "order": "sys-fence"}, func(c *record.Case) { c.Status = status }); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.values) != before {
		t.Error("records that are not ok count")
	}
	err = add("op", "issue", 1e-6, one, func(c *record.Case) { c.NIC = "mlx5" })
	if err == nil || !strings.Contains(err.Error(), "a platform is of one NIC and device") {
		t.Errorf("two NICs: %v", err)
	}
}
