"""Ways from a trainer to a reward, of which `reward_plane.py` compares the throughput."""
