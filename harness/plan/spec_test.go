package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gic/backends"
)

func TestParseSpec(t *testing.T) {
	tests := []struct {
		text string
		want Spec
	}{
		{"op", Spec{Name: "op"}},
		{"op:", Spec{Name: "op"}},
		{"op:size=8", Spec{"op", []Setting{{"size", []string{"8"}}}}},
		{"op:size=8|64K,op=put", Spec{"op", []Setting{{"size", []string{"8", "64K"}}, {"op", []string{"put"}}}}},
		{"moe:routing=trace,trace=../t/routing.csv", Spec{"moe", []Setting{{"routing", []string{"trace"}}, {"trace", []string{"../t/routing.csv"}}}}},
		{"moe:alpha=1.2", Spec{"moe", []Setting{{"alpha", []string{"1.2"}}}}},
		{"moe:model=Mixtral-8x7B", Spec{"moe", []Setting{{"model", []string{"Mixtral-8x7B"}}}}},
		{"op:x=1..4", Spec{"op", []Setting{{"x", []string{"1", "2", "3", "4"}}}}},
		{"op:x=0..100+25", Spec{"op", []Setting{{"x", []string{"0", "25", "50", "75", "100"}}}}},
		{"op:x=8..64*2", Spec{"op", []Setting{{"x", []string{"8", "16", "32", "64"}}}}},
		{"op:x=8..70*2|1M", Spec{"op", []Setting{{"x", []string{"8", "16", "32", "64", "1M"}}}}},
		{"op:x=1K..4K*2", Spec{"op", []Setting{{"x", []string{"1024", "2048", "4096"}}}}},
		{"op:size=8|64K,\n    op=put, x=1 ", Spec{"op", []Setting{{"size", []string{"8", "64K"}}, {"op", []string{"put"}}, {"x", []string{"1"}}}}}, // pasted
		{"op:x=7..7", Spec{"op", []Setting{{"x", []string{"7"}}}}},
		{"op:x=1..5000000000G*1000", Spec{}}, // beyond 2^62
	}
	for _, tt := range tests {
		got, err := ParseSpec(tt.text)
		if tt.want.Name == "" {
			if err == nil {
				t.Errorf("ParseSpec(%q) = %v, want an error", tt.text, got)
			}
			continue
		}
		if err != nil {
			t.Errorf("ParseSpec(%q): %v", tt.text, err)
			continue
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("ParseSpec(%q) (-want +got):\n%s", tt.text, d)
		}
	}
}

func TestParseSpecErrorsPointAtTheFault(t *testing.T) {
	tests := []struct {
		text string
		pos  int
		msg  string
	}{
		{"", 0, "not a name"},
		{"op:size=8,  =2", 12, "not a key"},
		{":a=1", 0, "not a name"},
		{"op size", 0, "not a name"},
		{"8op", 0, "not a name"},
		{"op:size", 7, `no value for "size"`},
		{"op:=8", 3, "not a key"},
		{"op:size=", 8, "a value is empty"},
		{"op:size=8|", 10, "a value is empty"},
		{"op:size=8|64,", 13, "not a key"},
		{"op:size=8,,op=put", 10, "not a key"},
		{"op:size=8,size=9", 10, "given twice"},
		{"op:size=8|9..1", 10, "is empty"},
		{"op:size=8..", 8, "is not a range"},
		{"op:size=8..x", 8, "is not a range"},
		{"op:size=1..9+0", 8, "step below 1"},
		{"op:size=0..9*2", 8, "start at 1"},
		{"op:size=1..9*1", 8, "factor of 2"},
		{"op:size=1..5000", 8, "more than 4096 values"},
		{"op:size=1..4096|7", 16, "more than 4096 values"},
	}
	for _, tt := range tests {
		_, err := ParseSpec(tt.text)
		var se *SyntaxError
		if !errors.As(err, &se) {
			t.Errorf("ParseSpec(%q): %v, want a SyntaxError", tt.text, err)
			continue
		}
		if se.Pos != tt.pos || !strings.Contains(se.Msg, tt.msg) {
			t.Errorf("ParseSpec(%q): position %d, %q; want %d, %q", tt.text, se.Pos, se.Msg, tt.pos, tt.msg)
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("ParseSpec(%q): the error has more than one line: %q", tt.text, err)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{"op", "op:size=8|64,op=put", "x:a=1..4", "x:a=8..64K*2", "x:a=0..9+3|..|1..", ":", "a:b=c=d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSpec(text)
		if err != nil {
			var se *SyntaxError
			if !errors.As(err, &se) || se.Pos < 0 || se.Pos > len(text) {
				t.Fatalf("ParseSpec(%q): %v", text, err)
			}
			return
		}
		for _, set := range s.Settings {
			if len(set.Values) == 0 || len(set.Values) > maxValues {
				t.Fatalf("ParseSpec(%q): %q has %d values", text, set.Key, len(set.Values))
			}
		}
		// What is printed means what was read.
		again, err := ParseSpec(s.String())
		if err != nil {
			t.Fatalf("ParseSpec(%q) of %q: %v", s, text, err)
		}
		if d := cmp.Diff(s, again); d != "" {
			t.Fatalf("%q read again (-first +second):\n%s", text, d)
		}
	})
}

func TestCheck(t *testing.T) {
	tests := []struct{ allowed, value, want string }{ // want "" for an error
		{"", "anything at all", "anything at all"},
		{"a|b|c", "b", "b"},
		{"a|b|c", "d", ""},
		{"a|b|c", "a|b", ""},
		{"1..256", "1", "1"},
		{"1..256", "256", "256"},
		{"1..256", "0", ""},
		{"1..256", "257", ""},
		{"1..256", "-1", ""},
		{"1..256", "1.5", ""},
		{"1..256", "", ""},
		{"8..1M", "64K", "65536"},
		{"8..1M", "064", "64"},
		{"8..1M", "1M", "1048576"},
		{"8..1M", "2M", ""},
		{"0..1G", "18446744073709551616", ""},
		{"0..8|all|none", "all", "all"},
		{"0..8|all|none", "08", "8"},
		{"0..8|all|none", "9", ""},
		{"0..8|all|none", "any", ""},
		{"0..8|all|none", "0..8", ""},
		{"0..1G", "9223372036854775807G", ""},
	}
	for _, tt := range tests {
		got, err := Check("backend b", backends.Key{Name: "k", Allowed: tt.allowed}, tt.value)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("Check(%q, %q) = %q, %v; want %q", tt.allowed, tt.value, got, err, tt.want)
		}
		if err != nil && tt.value != "" && !(strings.Contains(err.Error(), "k="+tt.value) && strings.Contains(err.Error(), tt.allowed)) {
			t.Errorf("Check(%q, %q): %q lacks the value or what is allowed", tt.allowed, tt.value, err)
		}
	}
}

func TestParseNIC(t *testing.T) {
	def := map[string]string{"engine": "cpu", "profile": "none", "threads": "1", "watch": "auto", "doorbell": "host", "trace": "off", "sms": "1", "writes": "runs", "queues": "auto", "window": "auto"}
	with := func(kv ...string) map[string]string {
		m := map[string]string{}
		for k, v := range def {
			m[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	tests := []struct {
		text, profile string
		devices       []string
		want          NIC
		err           string
	}{
		{"soft", "", nil, NIC{Kind: "soft", Config: def}, ""},
		{"soft:threads=2,watch=dbr", "", nil, NIC{Kind: "soft", Config: with("threads", "2", "watch", "dbr")}, ""},
		{"soft", "cx7-200", nil, NIC{Kind: "soft", Config: with("profile", "cx7-200")}, ""},
		{"none", "", nil, NIC{Kind: "none"}, ""},
		{"mlx5_1", "", []string{"mlx5_0", "mlx5_1"}, NIC{Kind: "mlx5", Device: "mlx5_1"}, ""},
		{"mlx5_2", "", []string{"mlx5_0", "mlx5_1"}, NIC{}, "--nic mlx5_2 is not known; known: soft, none, mlx5_0, mlx5_1"},
		{"mlx5_2", "", nil, NIC{}, "--nic mlx5_2 is not known; known: soft, none (this machine has no RDMA device)"},
		{"none:threads=2", "", nil, NIC{}, "--nic none:threads=2 is not known"},
		{"soft:threads=0", "", nil, NIC{}, "--nic soft: threads=0 is not allowed; allowed: 1..64"},
		{"soft:speed=9", "", nil, NIC{}, `--nic soft has no key "speed"; it has: engine, profile`},
		{"soft:threads=1|2", "", nil, NIC{}, "one run has one NIC"},
		{"soft:threads", "", nil, NIC{}, `no value for "threads"`},
		{"soft", "cx9", nil, NIC{}, "profile=cx9 is not allowed; allowed: none|"},
		{"soft:profile=none", "cx7-200", nil, NIC{}, "both give a profile"},
		{"none", "cx7-200", nil, NIC{}, "it cannot go with --nic none"},
	}
	for _, tt := range tests {
		got, err := ParseNIC(tt.text, tt.profile, tt.devices)
		switch {
		case tt.err == "" && err != nil:
			t.Errorf("ParseNIC(%q, %q): %v", tt.text, tt.profile, err)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("ParseNIC(%q, %q): error %v, want %q", tt.text, tt.profile, err, tt.err)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("ParseNIC(%q, %q) (-want +got):\n%s", tt.text, tt.profile, d)
		}
		if err == nil {
			again, err := ParseNIC(got.String(), "", tt.devices)
			if err != nil || !got.Equal(again) {
				t.Errorf("%q is printed as %q, which reads as %v, %v", tt.text, got, again, err)
			}
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"op", "rate", "goodput", "alltoall", "moe"}
	for name, want := range map[string]string{"oop": "op", "good": "goodput", "goodptu": "goodput", "all2all": "alltoall",
		"raet": "rate", "mo": "moe", "": "", "xyz": "", "nope": "", "o": "op", "zzzzzzzzzzzz": ""} {
		if got := Nearest(name, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}
