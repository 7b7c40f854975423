package cli

import (
	"gic/harness/attribution"
	"gic/harness/report"
)

// lint has a table say which guidelines of a comparison its rows do not keep.
func lint(rep *report.Report) { rep.SetLint(attribution.NewLinter()) }
