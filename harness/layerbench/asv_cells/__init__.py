"""What the processes of one asv command share: the ruler, a cell's measurement, the stored run."""
