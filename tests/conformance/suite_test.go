package conformance

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

// TestConformance is the suite as its authors run it. All that it does is decided by the suite's own flags.
func TestConformance(t *testing.T) {
	conformance.RunConformance(t)
}
