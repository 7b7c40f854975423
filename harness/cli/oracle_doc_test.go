package cli

import (
	"os"
	"strings"
	"testing"
)

// The page about the oracle has the error table as the command prints it, and examples that run.
func TestOracleDoc(t *testing.T) {
	data, err := os.ReadFile("../../docs/oracle.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	_, table, _ := gic(t, "predict", "--check", paperRows)
	var want strings.Builder
	for line := range strings.Lines(table) {
		if line != "\n" {
			line = "    " + line
		}
		want.WriteString(line)
	}
	if *update {
		head, _, _ := strings.Cut(doc, "prints:\n\n")
		doc = head + "prints:\n\n" + want.String()
		if err := os.WriteFile("../../docs/oracle.md", []byte(doc), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.HasSuffix(doc, want.String()) {
		t.Errorf("docs/oracle.md does not end with what gic predict --check results/paper prints:\n%s", want.String())
	}
	t.Chdir("../..") // examples name results/paper
	commands := examples(doc + helpPredict)
	if len(commands) < 6 {
		t.Fatalf("%d examples", len(commands))
	}
	for _, command := range commands {
		words := split(t, command)
		if status, stdout, stderr := gic(t, words[1:]...); status != 0 || stdout == "" {
			t.Errorf("%s: status %d, stderr %q", command, status, stderr)
		}
	}
}
