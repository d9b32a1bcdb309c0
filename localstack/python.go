package localstack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// python returns the Python of a virtual environment in the cache directory that has
// what a file of requirements names. pip fills it at the first time; without Python,
// venv or pip's registry the error is ErrNotInstalled.
func (c *serverConfig) python(ctx context.Context, who string, requirements []byte) (string, error) {
	cache, err := c.cache("python")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(requirements)
	home := filepath.Join(cache, hex.EncodeToString(sum[:8]))
	python := filepath.Join(home, "bin", "python3")
	if _, err := os.Stat(python); err == nil {
		return python, nil
	}
	system, err := exec.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("%w: %s needs Python 3, and there is no python3 on PATH", ErrNotInstalled, who)
	}
	// It is made beside its place, so that nobody finds half of it there.
	work, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return "", fmt.Errorf("localstack: %s: %w", who, err)
	}
	defer os.RemoveAll(work)
	venv, file := filepath.Join(work, "venv"), filepath.Join(work, "requirements.txt")
	if err := os.WriteFile(file, requirements, 0o600); err != nil {
		return "", fmt.Errorf("localstack: %s: %w", who, err)
	}
	for _, step := range []serverCommand{
		{name: "python3 -m venv", path: system, args: []string{"-m", "venv", venv}},
		{name: "pip install", path: filepath.Join(venv, "bin", "python3"), args: []string{
			"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r", file}},
	} {
		c.progress("%s: %s", who, step.name)
		step.log, step.dir = filepath.Join(work, "log"), work
		p, err := step.run()
		if err != nil {
			return "", err
		}
		if err := p.wait(ctx); err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return "", fmt.Errorf("%w: %s: %s: %w (on Debian the package python3-venv may be missing)%s", ErrNotInstalled, who, step.name, err, p.said())
			}
			return "", err
		}
	}
	// The programs in it say where it was made, so they are run as modules.
	if err := os.Rename(venv, home); err != nil {
		if _, there := os.Stat(python); there != nil { // another process may have been first
			return "", fmt.Errorf("localstack: %s: %w", who, err)
		}
	}
	return python, nil
}
