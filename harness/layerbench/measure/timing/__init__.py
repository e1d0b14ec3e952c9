"""Wall time, with the clock and the synchronisation injected."""
