# frozen_string_literal: true

require "ripper"
require "reward_server/reward"

module RewardServer
  # Whether the last Ruby block of a completion parses, by Ruby's own parser. Nothing of it runs.
  class RubyParses
    include Outcomes

    INFO = Proto::Reward.new(
      name: "ruby_parses",
      description: "1 where the last Ruby block of the completion parses; else partial_credit times the share of " \
                   "lines before the first syntax error.",
      scope: :SCOPE_COMPLETION,
      min_value: 0.0,
      max_value: 1.0,
      deterministic: true,
      config_schema_json: JSON.generate(
        type: "object",
        additionalProperties: false,
        properties: {
          partial_credit: { type: "number", minimum: 0, maximum: 0.9, default: 0.5,
                            description: "What the lines before the first error earn at most; 0 is all or nothing." }
        }
      )
    )

    # Notes the first error.
    class Parser < Ripper
      attr_reader :first_error

      private

      def note_error(message, *)
        @first_error ||= [lineno || 1, message]
      end

      alias compile_error note_error
      %i[parse alias assign class_name param].each { |kind| alias_method :"on_#{kind}_error", :note_error }

      # It warns on stderr otherwise.
      def warn(*) end
      alias warning warn
    end

    def initialize(config_json)
      @partial_credit = Config.read(config_json, "partial_credit" => 0.5)["partial_credit"]
      return if @partial_credit.is_a?(Numeric) && @partial_credit.between?(0, 0.9)

      raise ConfigError, { "partial_credit" => "#{@partial_credit.inspect} is no number from 0 to 0.9" }
    end

    def score(_group, completion)
      code = last_fenced(completion.prefill + completion.text)
      return scored(0.0, "no block that begins with ```ruby") unless code

      parser = Parser.new(code)
      parser.parse
      parser.error? ? broken(code, parser.first_error || [1, "syntax error"]) : scored(1.0)
    end

    private

    def broken(code, first_error)
      line, message = first_error
      share = [(line - 1).fdiv([code.lines.size, 1].max), 1.0].min
      scored(@partial_credit * share, "line #{line}: #{message}")
    end

    # The code of the last block that begins with ```ruby. A block that was cut off ends with the text.
    def last_fenced(text)
      code = nil
      inside = false
      text.each_line do |line|
        fence = line.strip
        if inside && fence == "```"
          inside = false
        elsif inside
          code << line
        elsif fence.casecmp?("```ruby") || fence.casecmp?("```rb")
          code = +""
          inside = true
        end
      end
      code
    end
  end
end
