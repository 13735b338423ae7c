from scoring_fixtures import make_scorer, serve, serve_process

__all__ = ["make_scorer", "serve", "serve_process"]
