//! What an agent remembers: sequence writer, chunk codec, shards, sum tree, rate limiter, snapshots.
