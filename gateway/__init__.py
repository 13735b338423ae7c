"""The gateway: jobs, datasets, reward servers, models, and everyone who watches them."""
