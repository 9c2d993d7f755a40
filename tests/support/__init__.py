"""What tests share: one fake upstream, one set of strategies, one running proxy."""
