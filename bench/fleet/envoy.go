package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// envoy finds the program: the system's, or that of the Python package in the virtual environment of
// install-bench-deps.sh.
func envoy() string {
	if path := look("envoy"); path != "" {
		return path
	}
	found, err := filepath.Glob(".venv/lib/python*/site-packages/envoy/_bin/envoy")
	if err != nil || len(found) == 0 {
		return ""
	}
	path, err := filepath.Abs(found[0])
	if err != nil {
		return ""
	}
	return path
}

// Envoy's Redis proxy.
const envoyConfig = `static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: %s}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.redis_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: bench
          settings: {op_timeout: 10s, enable_redirection: %t}
          prefix_routes: {catch_all_route: {cluster: redis}}
  clusters:
  - name: redis
    connect_timeout: 1s
%s
    load_assignment:
      cluster_name: redis
      endpoints:
      - lb_endpoints:
%s`

// In front of a cluster, redirections are followed, and each is a reason to ask for the slots again.
const envoyCluster = `    lb_policy: CLUSTER_PROVIDED
    cluster_type:
      name: envoy.clusters.redis
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.clusters.redis.v3.RedisClusterConfig
        cluster_refresh_rate: 1s
        cluster_refresh_timeout: 1s
        redirect_refresh_interval: 0.1s
        redirect_refresh_threshold: 1
        failure_refresh_threshold: 1`

// In front of one server, keys are hashed to it.
const envoyServer = `    type: STATIC
    lb_policy: MAGLEV`

func (f *Fleet) envoy(ctx context.Context, bin string, s *Server) (err error) {
	var nodes strings.Builder
	for _, n := range f.Nodes {
		fmt.Fprintf(&nodes, "        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %s}}}\n", port(n.Addr))
	}
	kind := envoyServer
	if len(f.Nodes) > 1 {
		kind = envoyCluster
	}
	path := filepath.Join(f.dir, "envoy.yaml")
	config := fmt.Appendf(nil, envoyConfig, port(s.Addr), kind == envoyCluster, kind, nodes.String())
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	s.Proxy, err = f.run(ctx, s.Addr, "envoy", bin, "-c", path, "--disable-hot-restart", "--log-level", "warning")
	return err
}
