// Command kubernetes is every Kubernetes program that the test cluster runs, in one binary: the first
// argument names the program. One binary links the shared packages once, where eight would link them eight times.
//
// It changes nothing about the programs: each is the command that the upstream main package of the same
// name runs, with the arguments it would get there. Only loadbalancer is our own.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/cmd"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	name := os.Args[1]
	os.Args = append([]string{name}, os.Args[2:]...)
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command := commandFor(name)
	if command == nil {
		usage()
	}
	os.Exit(cli.Run(command))
}

// commandFor is nil for a name that is none of ours.
func commandFor(name string) *cobra.Command {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return controllers.NewControllerManagerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kube-proxy":
		return proxy.NewProxyCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "kubeadm":
		return kubeadm.NewKubeadmCommand(os.Stdin, os.Stdout, os.Stderr)
	case "kubectl":
		return kubectl.NewDefaultKubectlCommand()
	case "loadbalancer":
		return newLoadBalancerCommand()
	}
	return nil
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: kubernetes etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kube-proxy|kubelet|kubeadm|kubectl|loadbalancer [ARGUMENT]...")
	os.Exit(2)
}
