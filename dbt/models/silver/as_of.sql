select
    'retention' as judged,
    {{ 'cast(' ~ (var('as_of') | int) ~ ' as bigint)' if var('retention_enabled') else 'cast(null as bigint)' }} as as_of
