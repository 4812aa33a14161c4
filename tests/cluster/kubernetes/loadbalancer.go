package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// The addresses of LoadBalancer Services, in the order of a Service's families. The last octet or group counts from 1.
var pools = map[core.IPFamily]netip.Prefix{
	core.IPv4Protocol: netip.MustParsePrefix("172.31.1.0/24"),
	core.IPv6Protocol: netip.MustParsePrefix("fd31:1::/64"),
}

// Addresses of one family: as many as the IPv4 pool has.
const maxAddresses = 254

// resync repairs what an event could not: a route that somebody removed, a write that was refused.
const resync = 2 * time.Second

// loadBalancer is what a cloud's controller is elsewhere: it gives each LoadBalancer Service addresses, and makes the
// router of the network, whose namespace it runs in, send them to the nodes. The rest is kube-proxy's.
type loadBalancer struct {
	client   kubernetes.Interface
	services corelisters.ServiceLister
	nodes    corelisters.NodeLister
	slices   discoverylisters.EndpointSliceLister
	// routes has what the router was last told, by address.
	routes map[string]string
}

func newLoadBalancerCommand() *cobra.Command {
	var kubeconfig string
	command := &cobra.Command{
		Use:   "loadbalancer",
		Short: "Give LoadBalancer Services addresses and routes, in the router's network namespace",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return runLoadBalancer(ctx, kubeconfig)
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "who it is to the API server")
	return command
}

func runLoadBalancer(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	balancer := &loadBalancer{
		client:   client,
		services: factory.Core().V1().Services().Lister(),
		nodes:    factory.Core().V1().Nodes().Lister(),
		slices:   factory.Discovery().V1().EndpointSlices().Lister(),
		routes:   map[string]string{},
	}
	// One slot: events that come while a pass runs merge into one more pass.
	changed := make(chan struct{}, 1)
	mark := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: mark, UpdateFunc: func(_, now any) { mark(now) }, DeleteFunc: mark,
	}
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().Services().Informer(),
		factory.Core().V1().Nodes().Informer(),
		factory.Discovery().V1().EndpointSlices().Informer(),
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	// One that ran before has left its routes.
	for _, pool := range pools {
		if err := ip(ctx, "route", "flush", "root", pool.String()); err != nil {
			return err
		}
	}
	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	for {
		if err := balancer.pass(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Pass failed, the next one tries again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
		}
	}
}

// pass makes everything as the caches say it should be.
func (b *loadBalancer) pass(ctx context.Context) error {
	services, err := b.services.List(labels.Everything())
	if err != nil {
		return err
	}
	slices.SortFunc(services, func(x, y *core.Service) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	taken := map[string]bool{}
	for _, service := range services {
		if service.Spec.Type == core.ServiceTypeLoadBalancer {
			for _, ingress := range service.Status.LoadBalancer.Ingress {
				taken[ingress.IP] = true
			}
		}
	}
	wanted := map[string]string{}
	// What is wrong with one Service holds up no other.
	var failures []error
	for _, service := range services {
		if service.Spec.Type != core.ServiceTypeLoadBalancer || service.Spec.LoadBalancerClass != nil {
			continue
		}
		ingress, err := addresses(service, taken)
		failures = append(failures, err, b.publish(ctx, service, ingress))
		for _, one := range ingress {
			if wanted[one.IP], err = b.route(service, one.IP); err != nil {
				return err
			}
		}
	}
	return errors.Join(append(failures, b.apply(ctx, wanted))...)
}

// addresses gives the address that spec.loadBalancerIP asks for if it is free; else it keeps what the Service has, and
// adds the first free address of each family that it lacks. Where none is left it gives those of the other family, and
// the error.
func addresses(service *core.Service, taken map[string]bool) ([]core.LoadBalancerIngress, error) {
	mode := core.LoadBalancerIPModeVIP
	var (
		result []core.LoadBalancerIngress
		full   error
	)
	for _, family := range service.Spec.IPFamilies {
		pool := pools[family]
		address := ""
		for _, has := range service.Status.LoadBalancer.Ingress {
			if ip, err := netip.ParseAddr(has.IP); err == nil && pool.Contains(ip) {
				address = has.IP
			}
		}
		if ip, err := netip.ParseAddr(service.Spec.LoadBalancerIP); err == nil && pool.Contains(ip) && !taken[ip.String()] {
			address = ip.String()
		}
		candidate := pool.Addr()
		for n := 0; address == "" && n < maxAddresses; n++ {
			candidate = candidate.Next()
			if !taken[candidate.String()] {
				address = candidate.String()
			}
		}
		if address == "" {
			full = fmt.Errorf("no address of %s is left for %s/%s", pool, service.Namespace, service.Name)
			continue
		}
		taken[address] = true
		result = append(result, core.LoadBalancerIngress{IP: address, IPMode: &mode})
	}
	return result, full
}

func (b *loadBalancer) publish(ctx context.Context, service *core.Service, ingress []core.LoadBalancerIngress) error {
	same := func(x, y core.LoadBalancerIngress) bool { return x.IP == y.IP }
	if slices.EqualFunc(service.Status.LoadBalancer.Ingress, ingress, same) {
		return nil
	}
	changed := service.DeepCopy()
	changed.Status.LoadBalancer.Ingress = ingress
	_, err := b.client.CoreV1().Services(service.Namespace).UpdateStatus(ctx, changed, meta.UpdateOptions{})
	return err
}

// route has the next hops for one address of a Service: every Ready node, or with the policy Local those with an
// endpoint that serves. Without any it is unreachable, as an address is that no node announces.
func (b *loadBalancer) route(service *core.Service, address string) (string, error) {
	nodes, err := b.nodes.List(labels.Everything())
	if err != nil {
		return "", err
	}
	slices.SortFunc(nodes, func(x, y *core.Node) int { return strings.Compare(x.Name, y.Name) })
	serving, err := b.serving(service)
	if err != nil {
		return "", err
	}
	isLocal := service.Spec.ExternalTrafficPolicy == core.ServiceExternalTrafficPolicyLocal
	is4 := netip.MustParseAddr(address).Is4()
	var hops strings.Builder
	for _, node := range nodes {
		if !isReady(node) || isLocal && !serving[node.Name] {
			continue
		}
		for _, has := range node.Status.Addresses {
			ip, err := netip.ParseAddr(has.Address)
			if has.Type == core.NodeInternalIP && err == nil && ip.Is4() == is4 {
				fmt.Fprintf(&hops, " nexthop via %s", ip)
			}
		}
	}
	if hops.Len() == 0 {
		return "unreachable", nil
	}
	return hops.String(), nil
}

func isReady(node *core.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition core.NodeCondition) bool {
		return condition.Type == core.NodeReady && condition.Status == core.ConditionTrue
	})
}

// serving names the nodes with a ready endpoint of the Service.
func (b *loadBalancer) serving(service *core.Service) (map[string]bool, error) {
	selector := labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: service.Name})
	found, err := b.slices.EndpointSlices(service.Namespace).List(selector)
	if err != nil {
		return nil, err
	}
	nodes := map[string]bool{}
	for _, slice := range found {
		for _, endpoint := range slice.Endpoints {
			serves := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			if serves && endpoint.NodeName != nil {
				nodes[*endpoint.NodeName] = true
			}
		}
	}
	return nodes, nil
}

// apply tells the router what changed since it was last told.
func (b *loadBalancer) apply(ctx context.Context, wanted map[string]string) error {
	for address := range b.routes {
		if _, keeps := wanted[address]; !keeps {
			if err := ip(ctx, "route", "del", address); err != nil {
				return err
			}
			delete(b.routes, address)
		}
	}
	for address, hops := range wanted {
		if b.routes[address] == hops {
			continue
		}
		arguments := []string{"route", "replace", address}
		if hops == "unreachable" {
			arguments = []string{"route", "replace", "unreachable", address}
		} else {
			arguments = append(arguments, strings.Fields(hops)...)
		}
		// A route of another type is another route: it would stay beside the new one.
		if was, known := b.routes[address]; known && (was == "unreachable") != (hops == "unreachable") {
			if err := ip(ctx, "route", "del", address); err != nil {
				return err
			}
			delete(b.routes, address)
		}
		if err := ip(ctx, arguments...); err != nil {
			return err
		}
		klog.InfoS("Routed", "address", address, "to", hops)
		b.routes[address] = hops
	}
	return nil
}

func ip(ctx context.Context, arguments ...string) error {
	output, err := exec.CommandContext(ctx, "ip", arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}
