package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/onceline/onceline/localstack/compose"
)

// load reads a compose file as Docker does, with the schema, the interpolation and
// the consistency of what services refer to checked, and no environment but its
// own.
func load(ctx context.Context, file string, profiles ...string) (*types.Project, error) {
	o, err := cli.NewProjectOptions([]string{file}, cli.WithProfiles(profiles), cli.WithConsistency(true), cli.WithInterpolation(true))
	if err != nil {
		return nil, err
	}
	return o.LoadProject(ctx)
}

// check returns all that is wrong with a compose file whose services endpoints
// lead to.
func check(ctx context.Context, file string, endpoints []compose.Endpoint) error {
	all, err := load(ctx, file, "*")
	if err != nil {
		return err
	}
	if len(all.Services) == 0 {
		return errors.New("there is no service")
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(all.Services)) {
		errs = append(errs, checkService(all.Services[name]))
	}
	page := filepath.Join(filepath.Dir(file), "localstack", "README.md")
	return errors.Join(append(errs, checkPorts(all, endpoints), checkProfiles(ctx, file, all, endpoints), checkPage(page, all, endpoints))...)
}

// checkPage holds the page for users to the file: it names each service's image and
// where it is reached.
func checkPage(file string, p *types.Project, endpoints []compose.Endpoint) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	page := string(text)
	var errs []error
	for _, e := range endpoints {
		image := p.Services[e.Service].Image
		// Without its registry, which only makes the table wide.
		if short := "/" + image; !strings.Contains(page, "`"+image+"`") && !strings.Contains(page, "`"+short[strings.LastIndexByte(short, '/')+1:]+"`") {
			errs = append(errs, fmt.Errorf("%s: %s doesn't name its image %q", e.Service, filepath.Base(file), image))
		}
		if u, err := url.Parse(e.URL); err == nil && !strings.Contains(page, u.Host) {
			errs = append(errs, fmt.Errorf("%s: %s doesn't say that it is at %s", e.Service, filepath.Base(file), u.Host))
		}
	}
	return errors.Join(errs...)
}

// checkService holds one service to what holds for all.
func checkService(s types.ServiceConfig) error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(s.Name+": "+format, args...))
	}
	if err := pinned(s.Image); err != nil {
		wrong("%w", err)
	}
	if s.Build != nil {
		wrong("it is built; only images are run")
	}
	if h := s.HealthCheck; h == nil || h.Disable || len(h.Test) < 2 || h.Test[0] == "NONE" {
		wrong("no health check")
	} else if h.Interval == nil || h.Timeout == nil || h.Retries == nil {
		wrong("its health check leaves interval, timeout or retries to Docker")
	}
	if len(s.Profiles) == 0 {
		wrong("no profile: it would start with each of the others")
	}
	for _, p := range s.Ports {
		if p.HostIP != "127.0.0.1" {
			wrong("port %d is published on %q, not on 127.0.0.1 alone", p.Target, p.HostIP)
		}
		if p.Published == "" || strings.Contains(p.Published, "-") {
			wrong("port %d is published on no port of its own", p.Target)
		}
	}
	if s.Privileged || s.NetworkMode == "host" || s.Pid == "host" {
		wrong("it has the host's rights")
	}
	for _, v := range s.Volumes {
		if v.Type != types.VolumeTypeBind {
			continue
		}
		if _, err := os.Stat(v.Source); err != nil {
			wrong("mounted file: %w", err) // Docker would make a folder of that name
		}
		if !v.ReadOnly {
			wrong("%s is mounted writable", filepath.Base(v.Source))
		}
	}
	return errors.Join(errs...)
}

// pinned reports an image whose tag moves.
func pinned(image string) error {
	name, tag, ok := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	tag, _, _ = strings.Cut(tag, "@")
	switch {
	case name == "" || !ok || tag == "":
		return fmt.Errorf("image %q has no tag", image)
	case strings.Contains(tag, "latest") || strings.Count(tag, ".") == 0:
		return fmt.Errorf("image %q: its tag names no release", image)
	}
	return nil
}

// checkPorts holds the published ports against each other and against the
// addresses in the endpoints: each of these is published by its service, and each
// service with an endpoint is there.
func checkPorts(p *types.Project, endpoints []compose.Endpoint) error {
	var errs []error
	owner := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(p.Services)) {
		for _, port := range p.Services[name].Ports {
			if other := owner[port.Published]; other != "" {
				errs = append(errs, fmt.Errorf("%s and %s: both are published on port %s", other, name, port.Published))
			}
			owner[port.Published] = name
		}
	}
	led := map[string]bool{}
	for _, e := range endpoints {
		led[e.Service] = true
		ports, err := portsOf(e.URL)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", e.Service, e.Name, err))
		}
		for _, port := range ports {
			if owner[port] != e.Service {
				errs = append(errs, fmt.Errorf("%s %s: its URL leads to port %s, which %q publishes", e.Service, e.Name, port, owner[port]))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Services)) {
		if len(p.Services[name].Ports) > 0 && !led[name] {
			errs = append(errs, fmt.Errorf("%s: it is published, and no URL leads to it", name))
		}
	}
	return errors.Join(errs...)
}

// portsOf returns the ports of the loopback that a URL leads to: its own, and those
// of parameters that name another.
func portsOf(raw string) ([]string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("its URL can't be read")
	}
	addresses := []string{u.Host}
	if admin := u.Query().Get("admin"); admin != "" {
		addresses = append(addresses, admin)
	}
	if port := u.Query().Get("stream-port"); port != "" {
		addresses = append(addresses, net.JoinHostPort("127.0.0.1", port))
	}
	var ports []string
	for _, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil || host != "127.0.0.1" {
			return ports, fmt.Errorf("its URL leads to %q, not to 127.0.0.1 and a port", a)
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// checkProfiles starts each profile alone, as far as that needs no Docker: what its
// services depend on must be in it. Each service with a URL has the profile of its
// name, which runs nothing else that has one.
func checkProfiles(ctx context.Context, file string, all *types.Project, endpoints []compose.Endpoint) error {
	var profiles []string
	for _, s := range all.Services {
		profiles = append(profiles, s.Profiles...)
	}
	slices.Sort(profiles)
	var errs []error
	runs := map[string]*types.Project{}
	for _, profile := range slices.Compact(profiles) {
		p, err := load(ctx, file, profile)
		if err != nil {
			errs = append(errs, fmt.Errorf("profile %s: %w", profile, err))
			continue
		}
		runs[profile] = p
	}
	for _, e := range endpoints {
		p := runs[e.Service]
		if p == nil {
			errs = append(errs, fmt.Errorf("%s: there is no profile of its name", e.Service))
			continue
		}
		if _, ok := p.Services[e.Service]; !ok {
			errs = append(errs, fmt.Errorf("profile %s doesn't run it", e.Service))
		}
		for _, other := range endpoints {
			if _, ok := p.Services[other.Service]; ok && other.Service != e.Service {
				errs = append(errs, fmt.Errorf("profile %s runs %s as well", e.Service, other.Service))
			}
		}
	}
	return errors.Join(errs...)
}
