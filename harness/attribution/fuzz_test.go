package attribution

import (
	"strings"
	"testing"
)

// Whatever a user's library file holds, it is read, or refused in one line.
func FuzzParseLibrary(f *testing.F) {
	names, err := libraryFiles.ReadDir("libraries")
	if err != nil {
		f.Fatal(err)
	}
	for _, n := range names {
		data, err := libraryFiles.ReadFile("libraries/" + n.Name())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add("name: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := ParseLibrary("x.yaml", []byte(text)); err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("not one line: %q", err)
		}
	})
}

// Whatever follows --as is a pose or refused.
func FuzzParsePose(f *testing.F) {
	for _, s := range []string{"minigda:order=threadfence,scope=all", "minigda", "a:b=", ":", "a:b=c,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePose(text)
		if err == nil && (p.Backend == "" || len(p.Config) == 0) {
			t.Errorf("%q became %+v", text, p)
		}
	})
}
