# frozen_string_literal: true

require "reward_server/session"

module RewardServer
  # The server's side of plaudit.reward.v1.
  class Service < Proto::RewardService::Service
    PROTOCOL_VERSION = 1

    def initialize(rewards)
      super()
      @rewards = rewards.to_h { |reward| [reward::INFO.name, reward] }
      @info = Proto::GetServerInfoResponse.new(
        server_name: "ruby-rewards",
        server_version: "1.0.0",
        min_protocol_version: PROTOCOL_VERSION,
        max_protocol_version: PROTOCOL_VERSION,
        rewards: rewards.map { |reward| reward::INFO },
        limits: Proto::Limits.new(max_frame_bytes: MAX_FRAME_BYTES),
        capabilities: Proto::Capabilities.new(cancellation: true)
      )
      @lock = Mutex.new
      @changed = ConditionVariable.new
      @sessions = []
      @draining = false
    end

    def get_server_info(_request, _call)
      @info
    end

    # One session. The enumerator is read in the thread of this call, and each frame is sent as it comes.
    def score(requests, _call)
      Enumerator.new do |frames|
        session = Session.new(@rewards)
        admit(session)
        session.serve(requests) { |frame| frames << frame }
      ensure
        remove(session)
      end
    end

    # Tells every client to finish and to come back later, and waits until they have, for at most `grace` seconds.
    def drain(grace)
      ends_at = now + grace
      @lock.synchronize do
        @draining = true
        @sessions.each { |session| session.drain(grace) }
        @changed.wait(@lock, [ends_at - now, 0].max) until @sessions.empty? || now >= ends_at
      end
    end

    private

    def admit(session)
      @lock.synchronize do
        raise GRPC::Unavailable, "the server is going away; come again later" if @draining

        @sessions << session
      end
    end

    def remove(session)
      @lock.synchronize do
        @sessions.delete(session)
        @changed.broadcast
      end
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
