package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVisible(t *testing.T) {
	all := []string{"GPU-aa11", "GPU-ab22", "GPU-cc33"}
	for _, c := range []struct {
		list string
		set  bool
		want []string
	}{
		{"", false, all},
		{"", true, nil},
		{"1", true, []string{"GPU-ab22"}},
		{"2, 0", true, []string{"GPU-cc33", "GPU-aa11"}},
		{"0,7,1", true, []string{"GPU-aa11"}},
		{"-1", true, nil},
		{"0,-1,1", true, []string{"GPU-aa11"}},
		{"NoDevFiles", true, nil},
		{"GPU-ab", true, []string{"GPU-ab22"}},
		{"GPU-cc33,GPU-aa11", true, []string{"GPU-cc33", "GPU-aa11"}},
		{"1,1", true, []string{"GPU-ab22"}},
		{"MIG-1,MIG-2", true, []string{"MIG-1", "MIG-2"}},
	} {
		if d := cmp.Diff(c.want, visible(all, c.list, c.set)); d != "" {
			t.Errorf("%q (-want +got):\n%s", c.list, d)
		}
	}
	if got := visible(nil, "0,MIG-1", true); got != nil {
		t.Errorf("without a driver: %v", got)
	}
}

func TestUUIDs(t *testing.T) {
	if got := (Reader{NVML: driver(h200(1, 0), h200(2, 0))}).uuids(); len(got) != 2 || got[0] == "" {
		t.Errorf("%q", got)
	}
	if got := (Reader{}).uuids(); got != nil {
		t.Errorf("without a driver: %q", got)
	}
}
