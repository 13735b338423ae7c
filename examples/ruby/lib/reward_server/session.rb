# frozen_string_literal: true

require "reward_server/reward"

module RewardServer
  # One stream: a thread reads its frames, and the thread of the call scores one batch after the other.
  class Session
    include Outcomes

    # Most completions in flight.
    WINDOW = 1024
    BUNDLE_RESULTS = 256
    # Results that were ready for this long are sent, in seconds.
    BUNDLE_WAIT = 0.02
    # Time budget of a batch that names none, in seconds.
    DEFAULT_TIMEOUT = 600

    Received = Struct.new(:batch, :deadline, :cancelled)

    def initialize(rewards)
      @rewards = rewards
      @scorers = {}
      # Frames that wait to be answered. It is bounded: what the server does not take, gRPC does not read.
      @inbox = SizedQueue.new(16)
      # Batches that are not done, by id.
      @pending = {}
      @open = false
    end

    # Yields the frames to send until the client has half-closed, or the server drains. What came before is answered.
    def serve(requests, &send)
      reader = Thread.new { read(requests) }
      loop do
        case message = @inbox.pop
        when Received then accept(message, &send)
        when Proto::SessionOpen then open(message, &send)
        when Proto::Draining
          send.call(Proto::ScoreResponse.new(draining: message)) if @open
          raise GRPC::Unavailable, "the server is going away; come again later"
        when :end then return
        when Exception then raise message
        end
      end
    ensure
      reader&.kill
    end

    def drain(grace)
      # In a thread of its own: the inbox may be full, of a client that does not read.
      Thread.new { @inbox << Proto::Draining.new(grace: duration(grace)) }
    end

    private

    def read(requests)
      requests.each do |request|
        case request.frame
        when :open then @inbox << request.open
        when :batch then receive(request.batch)
        when :cancel then @pending[request.cancel.batch_id]&.cancelled = true
        end # a frame of another kind is of a later revision, and is ignored
      end
      @inbox << :end
    rescue StandardError => e
      @inbox << e
    end

    def receive(batch)
      @inbox << (@pending[batch.batch_id] = Received.new(batch, now + timeout(batch), false))
    end

    def open(message)
      raise GRPC::InvalidArgument, "open: came twice; it is the first frame of a stream" if @open

      if message.protocol_version != Service::PROTOCOL_VERSION
        raise GRPC::FailedPrecondition, "protocol_version #{message.protocol_version} is not spoken here; " \
                                        "this server speaks #{Service::PROTOCOL_VERSION}"
      end
      wrong = []
      wrong << "session_id: is empty" if message.session_id.empty?
      wrong << "rewards: is empty; select at least one" if message.rewards.empty?
      message.rewards.each_with_index { |selection, index| wrong.concat(select(selection, "rewards[#{index}]")) }
      raise GRPC::InvalidArgument, wrong.join("; ") if wrong.any?

      @open = true
      yield Proto::ScoreResponse.new(opened: Proto::SessionOpened.new(max_in_flight_completions: WINDOW))
    end

    # Makes the scorer of a selection; returns what is wrong with it.
    def select(selection, field)
      key = selection.key
      wrong = []
      wrong << "#{field}.key: #{shown(key)} is empty or taken" if key.empty? || @scorers.key?(key)
      reward = @rewards[selection.name]
      return wrong << "#{field}.name: there is no reward #{shown(selection.name)}" unless reward

      @scorers[key] = reward.new(selection.config_json)
      wrong
    rescue ConfigError => e
      wrong + e.wrong.map { |name, message| "#{[field, "config", name].reject(&:empty?).join(".")}: #{message}" }
    end

    def accept(received, &send)
      raise GRPC::InvalidArgument, "open: is missing; it is the first frame of a stream" unless @open

      batch = received.batch
      keys = batch.reward_keys.empty? ? @scorers.keys : batch.reward_keys.to_a
      failure = refusal(batch, keys)
      if failure
        rejected = Proto::BatchRejected.new(batch_id: batch.batch_id, failure: failure)
        send.call(Proto::ScoreResponse.new(rejected: rejected))
      else
        score(received, keys, &send)
      end
    ensure
      @pending.delete(batch.batch_id)
    end

    def refusal(batch, keys)
      if (unknown = keys - @scorers.keys).any?
        Proto::Failure.new(code: :CODE_INVALID, message: "reward_keys: the session has no #{unknown.join(", ")}")
      elsif batch.groups.all? { |group| group.completions.empty? }
        Proto::Failure.new(code: :CODE_INVALID, message: "groups: there is no completion")
      end
    end

    # Sends a result for each completion and key, then done.
    def score(received, keys)
      batch = received.batch
      done = Proto::BatchDone.new(batch_id: batch.batch_id)
      results = []
      sent = now
      flush = lambda do
        yield Proto::ScoreResponse.new(results: Proto::Results.new(results: results))
        results = []
        sent = now
      end
      batch.groups.each do |group|
        group.completions.each do |completion|
          keys.each { |key| results << result(received, group, completion, key, done) }
          flush.call if results.size >= BUNDLE_RESULTS || now - sent >= BUNDLE_WAIT
        end
      end
      flush.call if results.any?
      yield Proto::ScoreResponse.new(done: done)
    end

    def result(received, group, completion, key, done)
      began = now
      outcome = outcome(received, group, completion, key)
      if outcome.key?(:score) then done.scored_count += 1
      elsif outcome.key?(:not_applicable) then done.not_applicable_count += 1
      else done.failed_count += 1
      end
      Proto::Result.new(batch_id: received.batch.batch_id, completion_id: completion.completion_id, reward_key: key,
                        scoring_duration: duration(now - began), **outcome)
    end

    def outcome(received, group, completion, key)
      if received.cancelled
        failed(:CODE_CANCELLED, "the client cancelled the batch")
      elsif now > received.deadline
        failed(:CODE_TIMEOUT, "the batch's timeout ran out")
      else
        @scorers[key].score(group, completion)
      end
    rescue StandardError, SystemStackError => e
      failed(:CODE_INTERNAL, "the reward raised #{e.class}: #{shown(e.message)}")
    end

    def timeout(batch)
      batch.timeout ? batch.timeout.seconds + batch.timeout.nanos / 1e9 : DEFAULT_TIMEOUT
    end

    def duration(seconds)
      whole, rest = seconds.divmod(1)
      Google::Protobuf::Duration.new(seconds: whole, nanos: (rest * 1e9).floor)
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
