package workloads

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/backends"
)

func TestPlacement(t *testing.T) {
	base := map[string]string{"placement": "0", "first_qp": "0", "place": "0", "places": "1", "placed": "0"}
	for _, c := range []struct {
		name  string
		point Point
		run   int
		posts bool
		runs  int
		want  map[string]string // beside base
		err   string
	}{
		{"none", Point{}, 0, true, 1, nil, ""},
		{"one place", Point{"placement": "7", "first_qp": "3"}, 0, true, 1, map[string]string{"placement": "7", "first_qp": "3"}, ""},
		{"the responder has the queue alone", Point{"placement": "7", "first_qp": "3"}, 0, false, 1, map[string]string{"first_qp": "3"}, ""},
		{"many", Point{"places": "32"}, 5, true, 32, map[string]string{"place": "5", "places": "32", "placed": "1"}, ""},
		{"many, of the responder", Point{"places": "32"}, 5, false, 32, map[string]string{"place": "5", "places": "32"}, ""},
		{"together", Point{"placement": "lanes", "places": "2"}, 1, true, 2, map[string]string{"together": "2", "place": "1", "places": "2", "placed": "1"}, ""},
		{"together, of the responder", Point{"placement": "warps"}, 0, false, 1, nil, ""},
		{"both", Point{"places": "2", "placement": "7"}, 0, true, 0, nil, "places=2 with placement=7, first_qp=0 is not allowed: it chooses both"},
		{"too many", Point{"places": "65"}, 0, true, 0, nil, "places=65 is not allowed: an integer in 1..64"},
		{"no queue", Point{"first_qp": "-1"}, 0, true, 0, nil, "first_qp=-1 is not allowed: an integer in 0..527"},
	} {
		point := Point{}
		for _, a := range PlacementAxes() {
			point[a.Name] = a.Default
		}
		for k, v := range c.point {
			point[k] = v
		}
		var p Placement
		if err := p.Parse(point); err != nil || c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: %v, want %q", c.name, err, c.err)
			}
			continue
		}
		got, want := map[string]string{}, map[string]string{}
		for k, v := range base {
			want[k] = v
		}
		for k, v := range c.want {
			want[k] = v
		}
		p.Put(got, c.run, c.posts)
		if d := cmp.Diff(want, got); d != "" || p.Runs() != c.runs {
			t.Errorf("%s: %d runs (-want +got):\n%s", c.name, p.Runs(), d)
		}
	}
}

func TestPlacementFacts(t *testing.T) {
	p := Placement{places: 3}
	s := Summary{Facts: map[string]any{}}
	r := RankResult{Series: []backends.Series{{Name: "place_multiprocessor", Values: []float64{4, 50, 99}}, {Name: "place_queue", Values: []float64{0, 1}}}}
	p.Facts(&s, r)
	if d := cmp.Diff(map[string]any{"place_multiprocessor": []float64{4, 50, 99}}, s.Facts); d != "" {
		t.Errorf("facts (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]float64{2, 20}, Medians([]float64{1, 2, 3, 10, 20, 30}, 2)); d != "" {
		t.Errorf("medians (-want +got):\n%s", d)
	}
}

// A record keeps all clocks of a few loops, and of many what they lie between.
func TestClocksOfManyLoops(t *testing.T) {
	var s Summary
	hz := make([]float64, 96)
	for i := range hz {
		hz[i] = 1e9 + float64(i)
	}
	AddClocks(&s, hz)
	if d := cmp.Diff([]float64{1e9, 1e9 + 47.5, 1e9 + 95}, s.Facts[clockHz]); d != "" || len(s.Warnings) != 0 {
		t.Errorf("warnings %v (-want +got):\n%s", s.Warnings, d)
	}
}
