"""What each call asks of a role. A call that is not known yet asks for more than reading."""

from __future__ import annotations

import pytest

from gateway.access.rules import Permission, allows, rule_of_method, rule_of_request
from plaudit.types.roles import Role

ORDER = [Permission.CALL, Permission.READ, Permission.WORK, Permission.ADMINISTER]


@pytest.mark.parametrize(
    ("role", "able"), [(Role.VIEWER, 2), (Role.SERVICE, 2), (Role.OPERATOR, 3), (Role.ADMIN, 4)]
)
def test_roles_may_do_what_weaker_ones_may(role: Role, able: int) -> None:
    assert [allows(role, permission) for permission in ORDER] == [n < able for n in range(4)]


@pytest.mark.parametrize(
    ("method", "permission", "changes"),
    [
        ("TrainingJobService/GetTrainingJob", Permission.READ, False),
        ("TrainingJobService/WatchEvents", Permission.READ, False),
        ("ModelService/DownloadModelFile", Permission.READ, False),
        ("TrainingJobService/PauseTrainingJob", Permission.WORK, True),
        ("DatasetService/UploadDataset", Permission.WORK, True),
        ("AnyService/BrandNew", Permission.WORK, True),
        ("RewardServerService/ListRewardServers", Permission.READ, False),
        ("RewardServerService/CreateRewardServer", Permission.ADMINISTER, True),
        ("TokenService/ListTokens", Permission.ADMINISTER, False),
        ("TokenService/CreateToken", Permission.ADMINISTER, True),
        ("TokenService/GetCaller", Permission.CALL, False),
    ],
)
def test_methods(method: str, permission: Permission, changes: bool) -> None:
    rule = rule_of_method(f"/plaudit.gateway.v1.{method}")
    assert (rule.permission, rule.changes) == (permission, changes)


@pytest.mark.parametrize(
    ("request_line", "permission", "changes"),
    [
        ("GET /v1/training_jobs", Permission.READ, False),
        ("HEAD /anything", Permission.READ, False),
        ("POST /v1/training_jobs/job_1/cancel", Permission.WORK, True),
        ("PATCH /v1/brand_new", Permission.WORK, True),
        ("OPTIONS /v1/brand_new", Permission.WORK, True),
        ("GET /v1/reward_servers/x", Permission.READ, False),
        ("DELETE /v1/reward_servers/x", Permission.ADMINISTER, True),
        ("POST /v1/reward_servers_2", Permission.WORK, True),
        ("GET /v1/tokens", Permission.ADMINISTER, False),
        ("DELETE /v1/tokens/x", Permission.ADMINISTER, True),
        ("GET /v1/audit", Permission.ADMINISTER, False),
        ("GET /v1/me", Permission.CALL, False),
    ],
)
def test_requests(request_line: str, permission: Permission, changes: bool) -> None:
    method, path = request_line.split()
    rule = rule_of_request(method, path)
    assert (rule.permission, rule.changes) == (permission, changes)
