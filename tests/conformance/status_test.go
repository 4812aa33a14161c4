package conformance

import (
	"flag"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// statusOnly names the suite's tests that read status and send no traffic.
var statusOnly = sets.New(
	"BackendTLSPolicyObservedGenerationBump",
	"BackendTLSPolicyPreserveForeignStatus",
	"GatewayClassObservedGenerationBump",
	"GatewayInfrastructureMetadata",
	"GatewayInvalidFrontendClientCertificateValidation",
	"GatewayInvalidParametersRef",
	"GatewayInvalidRouteKind",
	"GatewayInvalidTLSBackendConfiguration",
	"GatewayInvalidTLSConfiguration",
	"GatewayListenerUnsupportedProtocol",
	"GatewayModifyListeners",
	"GatewayNameMaximumLength",
	"GatewayObservedGenerationBump",
	"GatewayOptionalAddressValue",
	"GatewayPreserveForeignConditions",
	"GatewaySecretInvalidReferenceGrant",
	"GatewaySecretMissingReferenceGrant",
	"GatewaySecretReferenceGrantAllInNamespace",
	"GatewaySecretReferenceGrantSpecific",
	"GatewayStaticAddresses",
	"GatewayWithAttachedRoutes",
	"GatewayWithAttachedRoutesWithPort8080",
	"HTTPRouteDisallowedKind",
	"HTTPRouteInvalidCrossNamespaceParentRef",
	"HTTPRouteInvalidParentRefNotMatchingListenerPort",
	"HTTPRouteInvalidParentRefNotMatchingSectionName",
	"HTTPRouteInvalidParentRefSectionNameNotMatchingPort",
	"HTTPRouteObservedGenerationBump",
	"HTTPRoutePreserveForeignStatus",
	"ListenerSetAllowedNamespaceNone",
	"ListenerSetAllowedNamespaceSame",
	"ListenerSetAllowedNamespaceSelector",
	"ListenerSetAllowedRoutesSupportedKinds",
	"ListenerSetDefaultNotAllowed",
	"ListenerSetHostnameConflict",
	"ListenerSetProtocolConflict",
	"ListenerSetReferenceGrant",
	"ListenerSetRouteStatusScopedToParentRef",
	"TCPRouteInvalidBackendRefNonexistent",
	"TCPRouteInvalidCrossNamespaceBackendRef",
	"TCPRouteInvalidNonTCPListener",
	"TLSRouteInvalidNoMatchingListener",
	"TLSRouteInvalidNoMatchingListenerHostname",
	"TLSRouteInvalidReferenceGrant",
	"TLSRouteListenerMixedTerminationNotSupported",
	"TLSRouteListenerPassthroughSupportedKinds",
	"TLSRouteListenerTerminateNotSupported",
	"TLSRouteListenerTerminateSupportedKinds",
	"UDPRouteInvalidBackendRefNonexistent",
	"UDPRouteInvalidCrossNamespaceBackendRef",
	"UDPRouteNotAllowedByListeners",
)

// traffic names one test for each kind of route that sends traffic; the claimed features decide which of them run.
var traffic = sets.New(
	"HTTPRouteSimpleSameNamespace",
	"GRPCExactMethodMatching",
	"TLSRouteSimpleSameNamespace",
	"TCPRouteParentRefPortAndSectionName",
	"UDPRoute",
)

var withTraffic = flag.Bool("with-traffic", false, "TestStatusOnly: also one test with traffic for each kind of route")

// neverAssumed are features whose absence has tests of its own, which pass unasserted where the feature is claimed.
var neverAssumed = sets.New(features.SupportTLSRouteModeTerminate, features.SupportTLSRouteModeMixed)

// TestStatusOnly runs the suite's own tests of status also for features that are not claimed, since their data path is
// yet to come. It writes no report: what is not claimed is not supported.
func TestStatusOnly(t *testing.T) {
	opts := conformance.DefaultOptions(t)
	if opts.ReportOutputPath != "" {
		t.Fatal("this pass gives no report: it assumes features that are not claimed")
	}
	var selected []suite.ConformanceTest
	unknown := statusOnly.Union(traffic)
	for _, test := range tests.ConformanceTests {
		unknown.Delete(test.ShortName)
		if statusOnly.Has(test.ShortName) {
			assume(&opts, test.Features)
		} else if !*withTraffic || !traffic.Has(test.ShortName) {
			continue
		}
		selected = append(selected, test)
	}
	if unknown.Len() > 0 {
		t.Fatalf("the suite has no tests %v", sets.List(unknown))
	}
	pass, err := suite.NewConformanceTestSuite(opts)
	if err != nil {
		t.Fatalf("the suite cannot be made: %v", err)
	}
	pass.Setup(t, selected)
	if err := pass.Run(t, selected); err != nil {
		t.Fatalf("the suite did not run: %v", err)
	}
}

// assume claims the features of a test, but those whose absence is tested too.
func assume(opts *suite.ConformanceOptions, names []features.FeatureName) {
	for _, name := range names {
		if !neverAssumed.Has(name) && !slices.Contains(opts.SupportedFeatures, name) {
			opts.SupportedFeatures = append(opts.SupportedFeatures, name)
		}
	}
}
