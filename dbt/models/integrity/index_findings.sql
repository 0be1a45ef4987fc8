select
    case kind
        when 'foreign' then 'index_foreign_entry'
        when 'missing' then 'index_missing_entry'
        when 'repeated' then 'index_repeated_entry'
        when 'unreadable' then 'index_unreadable'
    end as check_name,
    'fail' as severity,
    room_id,
    index_name || ' ' || key as subject,
    case kind
        when 'foreign' then 'an entry of the key of the row'
        when 'missing' then 'an entry'
        when 'repeated' then 'one entry'
        when 'unreadable' then 'readable entries'
    end as expected,
    case kind
        when 'foreign' then 'an entry of another key, found ' || place
        when 'missing' then 'no entry'
        when 'repeated' then 'several entries'
        when 'unreadable' then 'an error ' || place
    end as found
from (
    select
        *,
        'between ' || coalesce('the key ' || nullif(get_json_object(searched, '$[0]'), 'null'), 'the first key')
        || ' and ' || coalesce('the key ' || nullif(get_json_object(searched, '$[1]'), 'null'), 'the last key') as place
    from {{ source('state', 'index_faults') }}
)
