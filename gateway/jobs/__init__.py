"""Training jobs: the state machine, who runs them where, and what they have reported.

`service.JobService` is what servicers and REST call. `job`, `transitions` and `journal` are plain data and
pure functions; `scheduler`, `trainer_link` and `reconciler` keep the store and the trainers in agreement.
"""
