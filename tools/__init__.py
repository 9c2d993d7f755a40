"""Developer tools: benchmarks, faults, real agents, generated pages, build hooks. The proxy imports none of it."""
