"""How rollouts are produced: sampling one id, the engine with resident caches, games played on it."""
