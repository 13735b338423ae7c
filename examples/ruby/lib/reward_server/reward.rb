# frozen_string_literal: true

require "json"

module RewardServer
  # Plaudit::Reward::V1 is what was generated from the proto file.
  Proto = Plaudit::Reward::V1

  # Names every wrong field of a config, as {field => message}; the field "" is the config itself.
  class ConfigError < StandardError
    attr_reader :wrong

    def initialize(wrong)
      @wrong = wrong
      super(wrong.map { |field, message| "#{field}: #{message}" }.join("; "))
    end
  end

  # What rewards make their results with.
  module Outcomes
    MOST_SHOWN = 80

    module_function

    def scored(value, explanation = "")
      { score: Proto::Score.new(value: value, explanation: explanation.scrub) }
    end

    def not_applicable(reason)
      { not_applicable: Proto::NotApplicable.new(reason: reason) }
    end

    def failed(code, message)
      { failure: Proto::Failure.new(code: code, message: message.scrub) }
    end

    # Quotes a text for people, shortened.
    def shown(text)
      (text.length > MOST_SHOWN ? "#{text[0, MOST_SHOWN]}…" : text).inspect
    end
  end

  # Reads the config of a session.
  module Config
    module_function

    # The config over its defaults. Raises ConfigError for text that is no JSON object, and for unknown fields.
    def read(json, defaults)
      given = json.empty? ? {} : JSON.parse(json)
      raise ConfigError, { "" => "is no JSON object" } unless given.is_a?(Hash)

      unknown = given.keys - defaults.keys
      raise ConfigError, unknown.to_h { |field| [field, "there is no such field"] } if unknown.any?

      defaults.merge(given)
    rescue JSON::ParserError => e
      raise ConfigError, { "" => "is no JSON: #{Outcomes.shown(e.message)}" }
    end
  end
end
