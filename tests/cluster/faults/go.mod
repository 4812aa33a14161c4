module gateway-agent/tests/cluster/faults

go 1.26.0
