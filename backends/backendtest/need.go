package backendtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Need skips a test for want of something outside the repository; in CI (CI=true), where everything is
// installed, that is a failure.
func Need(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("missing in CI: %s", what)
	}
	t.Skip("missing: " + what)
}

// Root is the module's root folder.
func Root(t testing.TB) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) { // -trimpath: tests run in their package's folder
		dir, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for d := dir; d != filepath.Dir(d); d = filepath.Dir(d) {
			if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
				return d
			}
		}
		t.Fatalf("no go.mod above %s", dir)
	}
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Built returns the path of a file that make leaves in the build folder (environment GIC_BUILD, or build/ of the
// module), and skips the test when it is not there.
func Built(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("GIC_BUILD")
	if dir == "" {
		dir = filepath.Join(Root(t), "build")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		Need(t, path+": run make")
	}
	return path
}

// Compile builds a shared object from one C or C++ source with this machine's compiler and returns its path. The
// module's root is an include path, as in the Makefile.
func Compile(t testing.TB, source string, flags ...string) string {
	t.Helper()
	compiler, std := "cc", "-std=gnu11"
	if ext := filepath.Ext(source); ext != ".c" {
		compiler, std = "c++", "-std=gnu++17"
	}
	bin, err := exec.LookPath(compiler)
	if err != nil {
		Need(t, "C/C++ compiler ("+compiler+")")
	}
	out := filepath.Join(t.TempDir(), "lib"+strings.TrimSuffix(filepath.Base(source), filepath.Ext(source))+".so")
	args := append([]string{std, "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden",
		"-pthread", "-I", Root(t), "-o", out}, flags...)
	if filepath.Ext(source) == ".cu" {
		args = append(args, "-x", "c++")
	}
	args = append(args, source, "-lrt")
	if msg, err := exec.Command(bin, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", compiler, strings.Join(args, " "), err, msg)
	}
	return out
}
