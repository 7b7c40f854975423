package cli

import (
	"gic/backends"
	"gic/backends/fake"
)

func openFake() backends.Backend { return fake.New(workloadList()...) }
