// Command gic compares communication stacks on identical work; `gic help` says how.
package main

import (
	"os"

	"gic/harness/cli"
)

func main() { os.Exit(cli.Run(os.Stdout, os.Stderr, os.Args[1:])) }
