package run

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
)

// hashTrace adds the hash of the trace file that a session's facts name, so that a record tells which bytes it means.
func hashTrace(facts map[string]string) {
	path := facts["trace"]
	if path == "" || path == "off" {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		return // the fact is no path: why there is no file
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		facts["trace.sha256"] = "not known: " + err.Error()
		return
	}
	facts["trace.sha256"] = hex.EncodeToString(h.Sum(nil))
}
