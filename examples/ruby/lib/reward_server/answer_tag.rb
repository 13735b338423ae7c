# frozen_string_literal: true

require "reward_server/reward"

module RewardServer
  # 1 where the number in the last answer tag equals column answer, else 0.
  class AnswerTag
    include Outcomes

    TAG = /\A[A-Za-z][A-Za-z0-9_-]{0,62}\z/
    # No exponent: 1e999999999 would be a number of a billion digits.
    NUMBER = /\A[+-]?\d{1,100}(\.\d{1,100})?\z/

    INFO = Proto::Reward.new(
      name: "answer_tag",
      description: "1 where the number in the last <answer> tag equals column answer, else 0.",
      scope: :SCOPE_COMPLETION,
      min_value: 0.0,
      max_value: 1.0,
      deterministic: true,
      required_columns: ["answer"],
      config_schema_json: JSON.generate(
        type: "object",
        additionalProperties: false,
        properties: {
          tag: { type: "string", pattern: "^[A-Za-z][A-Za-z0-9_-]{0,62}$", default: "answer",
                 description: "Name of the tag." }
        }
      )
    )

    def initialize(config_json)
      tag = Config.read(config_json, "tag" => "answer")["tag"]
      unless tag.is_a?(String) && TAG.match?(tag)
        raise ConfigError, { "tag" => "#{shown(tag.to_s)} is no name of a tag" }
      end

      @opening = "<#{tag}>"
      @closing = "</#{tag}>"
    end

    def score(group, completion)
      column = group.columns["answer"]
      return failed(:CODE_INVALID, "column answer is missing") unless column
      return not_applicable("column answer is null") unless column.kind

      expected = number_of(column)
      unless expected
        value = column.public_send(column.kind).to_s
        return failed(:CODE_INVALID, "column answer holds #{shown(value)}, which is no number")
      end
      grade(last_tagged(completion.prefill + completion.text), expected)
    end

    private

    def grade(text, expected)
      return scored(0.0, "no #{@opening} tag that is closed") unless text

      answer = parse(text)
      return scored(0.0, "#{shown(text)} is no number") unless answer

      answer == expected ? scored(1.0) : scored(0.0, "#{shown(text)} is not the answer")
    end

    # A column by its type, as an exact number: 72 and 72.0 are the same, and 2**70 is itself.
    def number_of(column)
      case column.kind
      when :int_value then Rational(column.int_value)
      # By its shortest decimal: 0.1 means a tenth.
      when :double_value then Rational(column.double_value.to_s) if column.double_value.finite?
      when :string_value then parse(column.string_value)
      when :json_value then parse(column.json_value)
      end
    end

    def parse(text)
      text = text.strip
      Rational(text) if NUMBER.match?(text)
    end

    # The text of the last tag that is closed.
    def last_tagged(text)
      before, closing, = text.rpartition(@closing)
      return if closing.empty?

      _, opening, inside = before.rpartition(@opening)
      inside unless opening.empty?
    end
  end
end
