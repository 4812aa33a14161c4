//go:build tools

package conformance

// The release that the suite tests; its own requirement names a folder beside it, which go.mod does not inherit.
import _ "sigs.k8s.io/gateway-api/apis/v1"
