// Command kubectl is the Kubernetes command line, built from its published library.
//
// k8s.io/kubernetes/cmd/kubectl is this call and nothing more; building it from the library spares
// the download of all of Kubernetes. hack/find_kubectl.py builds it for machines that have none.
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
