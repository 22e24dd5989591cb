-- A score is a time, ms. The fraction of the score, times 2048, is the time of the member's last request, in tenths of a
-- second, modulo 2047, plus 1. The fraction is 0 if this time is unknown. Redisson adds only integers to a score, so the
-- fraction is kept.

-- Returns the score for a time. The fraction encodes `now`.
local function time_of(score, now)
    return string.format('%.17g', math.floor(score) + (math.floor(now / 100) % 2047 + 1) / 2048)
end

-- Returns a lower bound for the time since the member's last request, ms; false if that time is unknown. Times repeat
-- every 204.7 s. A time of 102.4 s or more is treated as a clock that was set back: the result is false.
local function silence_of(score, now)
    local noted = score % 1 * 2048
    local silence = noted > 0 and (math.floor(now / 100) - noted + 1) % 2047
    return silence and silence < 1024 and (silence - 1) * 100
end

