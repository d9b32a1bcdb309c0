package localstack

import (
	"maps"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupConfigs are the configs of groups, by group and name, that are set at each
// start of the broker. Kafka keeps them in its metadata log; kfake forgets them
// in a crash, so the proxy notes what clients set and the next start gives it back.
type groupConfigs struct {
	mu sync.Mutex
	m  map[string]map[string]string
}

func (g *groupConfigs) init(m map[string]map[string]string) {
	for group, configs := range m {
		g.set(group, configs)
	}
}

func (g *groupConfigs) set(group string, configs map[string]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.m == nil {
		g.m = map[string]map[string]string{}
	}
	if g.m[group] == nil {
		g.m[group] = map[string]string{}
	}
	maps.Copy(g.m[group], configs)
}

func (g *groupConfigs) snapshot() map[string]map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := make(map[string]map[string]string, len(g.m))
	for group, configs := range g.m {
		c[group] = maps.Clone(configs)
	}
	return c
}

// altered notes the configs that a broker has taken.
func (g *groupConfigs) altered(req *kmsg.IncrementalAlterConfigsRequest, resp *kmsg.IncrementalAlterConfigsResponse) {
	if req.ValidateOnly {
		return
	}
	taken := map[string]bool{}
	for _, r := range resp.Resources {
		taken[r.ResourceName] = r.ResourceType == kmsg.ConfigResourceTypeGroupConfig && r.ErrorCode == 0
	}
	for _, r := range req.Resources {
		if r.ResourceType != kmsg.ConfigResourceTypeGroupConfig || !taken[r.ResourceName] {
			continue
		}
		for _, c := range r.Configs {
			if c.Op == kmsg.IncrementalAlterConfigOpSet && c.Value != nil {
				g.set(r.ResourceName, map[string]string{c.Name: *c.Value})
			} else if c.Op == kmsg.IncrementalAlterConfigOpDelete {
				g.mu.Lock()
				delete(g.m[r.ResourceName], c.Name)
				g.mu.Unlock()
			}
		}
	}
}
