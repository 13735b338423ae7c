# Three images: `docker build --target gateway` (or reward, or trainer) makes one; compose.yaml makes them all.
FROM python:3.11-slim AS base
ENV PATH=/opt/plaudit/bin:$PATH \
    HOME=/tmp \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PLAUDIT_CONFIG=/etc/plaudit/plaudit.toml \
    PLAUDIT_SECRETS_DIR=/secrets
# Volumes take over who owns the folder that they are mounted on.
RUN useradd --uid 10001 --no-create-home --home-dir /tmp plaudit \
    && mkdir -p /data /artifacts /ca /secrets/gateway /secrets/trainer /secrets/reward /etc/plaudit \
    && chown -R plaudit /data /artifacts /ca /secrets \
    && python3 -m venv /opt/plaudit
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
# What is built on first and alone changes seldom: without our packages, this installs what they need.
RUN pip install -q -c constraints.txt '.[gateway]'

FROM base AS gateway
COPY plaudit plaudit
COPY gateway gateway
RUN pip install -q -c constraints.txt --no-deps --force-reinstall .
USER plaudit
CMD ["python", "-m", "gateway"]

FROM base AS reward
RUN pip install -q -c constraints.txt '.[judge,math]'
COPY plaudit plaudit
COPY reward_service reward_service
RUN pip install -q -c constraints.txt --no-deps --force-reinstall .
USER plaudit
CMD ["python", "-m", "reward_service"]

FROM base AS trainer
RUN pip install -q -c constraints.txt torch && pip install -q -c constraints.txt '.[trainer]'
ENV HF_HOME=/data/huggingface
COPY plaudit plaudit
COPY trainer_service trainer_service
RUN pip install -q -c constraints.txt --no-deps --force-reinstall .
USER plaudit
CMD ["python", "-m", "trainer_service"]
