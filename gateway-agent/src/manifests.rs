//! Standalone mode: a folder of manifests in place of the Kubernetes API.
