package op

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gic/workloads"
	"gic/workloads/worktest"
)

// clock is what rank 1 really makes of the delays it is asked for, ns, and whether the check may say nothing.
type clock struct {
	name  string
	delay func(ns float64) float64
	right bool
}

func clocks(random *rand.Rand) []clock {
	echoes := 0
	return []clock{
		{"right", func(ns float64) float64 { return ns }, true},
		{"0.5 % fast", func(ns float64) float64 { return ns * 0.995 }, true},
		{"3 % slow", func(ns float64) float64 { return ns * 1.03 }, false},
		{"3 % fast", func(ns float64) float64 { return ns * 0.97 }, false},
		{"twice as slow", func(ns float64) float64 { return ns * 2 }, false},
		{"1.2 us more where it can", func(ns float64) float64 { return ns + 1200*math.Trunc(ns/50000) }, false},
		{"1.2 us less where it can", func(ns float64) float64 { return ns - 1200*math.Trunc(ns/50000) }, false},
		{"none", func(float64) float64 { return 0 }, false},
		{"any up to twice", func(ns float64) float64 { return ns * 2 * random.Float64() }, false},
		{"none at every fortieth echo", func(ns float64) float64 {
			if echoes++; echoes%40 < 2 && ns >= 50000 { // one of a pair
				return ns - 50000
			}
			return ns
		}, false},
	}
}

// judge is what the check says of round trips, ns, that are seen by a poll each `poll` ns.
func judge(t *testing.T, pairs string, poll float64, trip func(echo int) float64, delay func(ns float64) float64) (workloads.Summary, string) {
	t.Helper()
	j := worktest.Prepare(t, Workload{}, 2, "op", "put", "timer_check", pairs).(*job)
	var list []float64
	for i, d := range j.delays() {
		list = append(list, poll*math.Ceil((trip(i)+delay(float64(d)))/poll)*1e-9)
	}
	s := workloads.Summary{Facts: map[string]any{}}
	j.checkTimer(&s, list)
	if len(s.Warnings) == 0 {
		return s, ""
	}
	return s, s.Warnings[0].Text
}

// A round trip is seen by polls: what the timer check says must not depend on how far they lie apart, nor on where
// between two of them an answer falls, and it must see a timer that is wrong.
func TestTimerCheck(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range clocks(random) {
		for poll := 50.0; poll <= 1500; poll += 50 {
			for least := 5000.0; least < 6000; least += 130 {
				trip := func(int) float64 { return least + 100*random.Float64() }
				if s, said := judge(t, "50", poll, trip, c.delay); (said == "") != c.right {
					t.Fatalf("%s, a poll each %g ns, round trips of %g: %v, %q", c.name, poll, least, s.Facts, said)
				}
			}
		}
	}
	trip := func(int) float64 { return 5000 + 100*random.Float64() }
	if s, said := judge(t, "50", 6000, trip, clocks(random)[0].delay); !strings.Contains(said, "vary too much") {
		t.Errorf("a poll each 6 us: %v, %q", s.Facts, said)
	}
}

// A stack may take longer at every so many-th message, and each message of an echo is one. softnic's GPU engine did so at every
// fourth, by 1.6 us: all undelayed echoes were slow then and all delayed ones were not, which looked like 48.4 us.
func TestTimerCheckTurns(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, c := range clocks(random) {
		for _, every := range []int{2, 3, 4, 5, 7, 8, 16} {
			for request := range every {
				for reply := range every {
					trip := func(i int) float64 {
						ns := 9800 + 600*random.Float64()
						if i%every == request {
							ns += 1600
						}
						if i%every == reply {
							ns += 1600
						}
						return ns
					}
					if s, said := judge(t, "100", 10, trip, c.delay); (said == "") != c.right {
						t.Fatalf("%s, every %dth, %d and %d: %v, %q", c.name, every, request, reply, s.Facts, said)
					}
				}
			}
		}
	}
}

// Each pair has one of both, whatever its number.
func TestTimerCheckPairs(t *testing.T) {
	j := worktest.Prepare(t, Workload{}, 2, "op", "put", "timer_check", "300").(*job)
	d := j.delays()
	for i := 0; i < len(d); i += 2 {
		if low, high := min(d[i], d[i+1]), max(d[i], d[i+1]); high-low != 50000 || low >= checkSpan {
			t.Errorf("pair %d: %d and %d ns", i/2, d[i], d[i+1])
		}
	}
}
